// The diagnosis of one group: its findings, the most basic cause first.

import { get, path } from "./api.js";
import { h } from "./dom.js";

/** Return an element that shows the diagnosis of the page's group, and keeps it current. */
export function diagnosisOf(ctx) {
  const element = h("div", { class: "diagnosis", role: "status", "aria-label": "Diagnosis" });
  ctx.every(10_000, async () => {
    const found = await get(path("groups", ctx.group, "diagnosis"), {}, ctx);
    const first = found.findings[0];
    element.replaceChildren(
      h("p", {}, h("strong", {}, `${found.sentence}.`), first ? ` ${first.cure}${first.command ? ":" : "."}` : ""),
      ...(first?.command ? [h("p", {}, h("code", {}, first.command))] : []),
      ...(found.findings.length > 1
        ? [h("details", {}, h("summary", {}, `All ${found.findings.length} findings`), h("ol", {}, found.findings.map((each) => h("li", {}, each.sentence))))]
        : []),
    );
  });
  return element;
}
