// A bar chart with a name and a value for each bar.

import { h, svg } from "./dom.js";

const BAR = 18;

/** rows: {name, value, text, strong}; *most*: value of a full bar. */
export function bars(title, rows, most) {
  const full = Math.max(most ?? 0, ...rows.map((row) => row.value), 1e-9);
  return h(
    "figure",
    { class: "chart bars" },
    h("figcaption", {}, title),
    h(
      "dl",
      {},
      rows.map((row) =>
        h(
          "div",
          { class: row.strong && "strong" },
          h("dt", { class: "mono" }, row.name),
          h(
            "dd",
            {},
            svg("svg", { height: BAR, width: "100%", "aria-hidden": "true", preserveAspectRatio: "none" }, svg("rect", { class: "bar", height: BAR, width: `${((100 * row.value) / full).toFixed(2)}%` })),
            h("span", {}, row.text),
          ),
        ),
      ),
    ),
  );
}
