// Line charts of the last hour in SVG. Each line has its own dash pattern as well as its colour.

import { h, svg } from "./dom.js";
import { count, moment, rate } from "./format.js";

const HEIGHT = 168;
const EDGE = { top: 10, right: 10, bottom: 22, left: 52 };

/** lines: [name, label]; the first is drawn on top. *digits*: values are rates. */
export class Chart {
  constructor(title, lines, { digits = false } = {}) {
    this.lines = lines;
    this.write = digits ? rate : count;
    this.series = null;
    this.picture = svg("svg", { role: "img", "aria-label": `${title}: no data yet`, height: HEIGHT, width: "100%" });
    this.legend = h("ul", { class: "legend" });
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, title), this.picture, this.legend);
    this.title = title;
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.tell(null));
  }

  update(series) {
    this.series = series;
    this.draw();
  }

  draw() {
    const width = Math.max(200, this.element.clientWidth);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.replaceChildren();
    const { series } = this;
    if (!series || series.at_ms.length === 0) return;
    const most = Math.max(1e-9, ...this.lines.flatMap(([name]) => series[name].map((value) => value ?? 0)));
    const top = round(most);
    const end = series.at_ms.at(-1);
    const begin = end - 3_600_000;
    this.x = (ms) => EDGE.left + ((ms - begin) / (end - begin)) * (width - EDGE.left - EDGE.right);
    const y = (value) => HEIGHT - EDGE.bottom - (value / top) * (HEIGHT - EDGE.top - EDGE.bottom);
    for (const step of [0, 0.5, 1]) {
      const at = y(top * step);
      this.picture.append(
        svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at }),
        svg("text", { class: "tick", x: EDGE.left - 6, y: at + 4, "text-anchor": "end" }, short(top * step)),
      );
    }
    for (const minutes of [60, 40, 20, 0]) {
      const at = this.x(end - minutes * 60_000);
      const anchor = minutes === 60 ? "start" : minutes === 0 ? "end" : "middle";
      const text = minutes ? `${minutes} min ago` : "now";
      this.picture.append(svg("text", { class: "tick", x: at, y: HEIGHT - 6, "text-anchor": anchor }, text));
    }
    this.lines.toReversed().forEach(([name], back) => {
      const index = this.lines.length - 1 - back;
      const d = pathOf(series.at_ms, series[name], this.x, y);
      this.picture.append(svg("path", { class: `line line-${index}`, d }));
    });
    this.cursor = svg("line", { class: "cursor", y1: EDGE.top, y2: HEIGHT - EDGE.bottom, visibility: "hidden" });
    this.picture.append(this.cursor);
    this.tell(null);
  }

  point(event) {
    if (!this.series?.at_ms.length) return;
    const box = this.picture.getBoundingClientRect();
    const at = event.clientX - box.left;
    const places = this.series.at_ms.map((ms) => Math.abs(this.x(ms) - at));
    this.tell(places.indexOf(Math.min(...places)));
  }

  tell(place) {
    const { series } = this;
    if (!series?.at_ms.length) return;
    const index = place ?? series.at_ms.length - 1;
    const figures = this.lines.map(([name, label]) => [label, this.write(series[name][index]), this.write(Math.max(0, ...series[name].map((v) => v ?? 0)))]);
    this.legend.replaceChildren(
      ...figures.map(([label, value, most], line) =>
        h("li", {}, svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, svg("path", { class: `line line-${line}`, d: "M0 4H22" })), ` ${label} `, h("b", {}, value), h("span", { class: "muted" }, ` max ${most}`)),
      ),
      h("li", { class: "muted" }, place === null ? "now" : `at ${moment(series.at_ms[index])}`),
    );
    this.picture.setAttribute("aria-label", `${this.title}. ${figures.map(([label, value, most]) => `${label}: ${value} now, maximum of the last hour ${most}`).join("; ")}.`);
    this.cursor.setAttribute("visibility", place === null ? "hidden" : "visible");
    if (place !== null) {
      this.cursor.setAttribute("x1", this.x(series.at_ms[index]));
      this.cursor.setAttribute("x2", this.x(series.at_ms[index]));
    }
  }
}

function pathOf(times, values, x, y) {
  let path = "";
  let drawing = false;
  values.forEach((value, index) => {
    if (value === null) {
      drawing = false;
      return;
    }
    path += `${drawing ? "L" : "M"}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}`;
    drawing = true;
  });
  return path;
}

function round(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [1, 2, 5, 10].find((each) => each * power >= most) * power;
  return Math.max(step, 1);
}

function short(value) {
  if (value >= 1e6) return `${value / 1e6} M`;
  if (value >= 1e4) return `${value / 1e3} k`;
  return String(Math.round(value * 100) / 100);
}
