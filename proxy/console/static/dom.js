// Creates elements from names and texts. Nothing is ever parsed as HTML, so keys, reasons and bodies
// are always shown as text.

const SVG = "http://www.w3.org/2000/svg";

// Control characters, and signs that are invisible or change the writing direction: in a key or a
// reason they would make a page read differently from what is stored.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Return *text* with such signs as escapes. */
export function visible(text) {
  return text.replace(UNSEEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : name === "title" ? visible(String(value)) : String(value));
  }
  const shown = children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
  element.append(...shown.map((each) => (typeof each === "string" ? visible(each) : each)));
  return element;
}

/** Create an HTML element: h("p", {class: "muted", onclick: act}, "text", another). */
export function h(name, attributes, ...children) {
  return put(document.createElement(name), attributes, children);
}

/** Replace the content of *element*, unless it is the same: links keep the focus. */
export function retell(element, ...children) {
  const made = h("span", {}, ...children);
  const [old, now] = [[...element.childNodes], [...made.childNodes]];
  if (old.length !== now.length || now.some((each, n) => !each.isEqualNode(old[n]))) element.replaceChildren(...now);
}

/** Create an SVG element. */
export function svg(name, attributes, ...children) {
  return put(document.createElementNS(SVG, name), attributes, children);
}

/** Create a button that calls *act*. */
export function button(label, act, attributes) {
  return h("button", { type: "button", onclick: act, ...attributes }, label);
}

let last = 0;

/** Create a label with *input* below it; *input* gets an id. */
export function labelled(label, input, hint) {
  input.id ||= `field-${(last += 1)}`;
  if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
  return h(
    "div",
    { class: "field" },
    h("label", { for: input.id }, label),
    input,
    hint && h("span", { class: "hint", id: `${input.id}-hint` }, hint),
  );
}

/** Create a select of [value, text] pairs. */
export function choice(pairs, value, attributes) {
  const made = h("select", attributes, pairs.map(([each, text]) => h("option", { value: each }, text)));
  made.value = value;
  return made;
}

/** Create a state badge: a shape and a word, readable without colours. */
export function badge({ word, kind, title }) {
  const shapes = { ok: "●", busy: "◐", warn: "▲", bad: "■", idle: "○" };
  return h("span", { class: `badge ${kind}`, title }, h("span", { "aria-hidden": "true" }, shapes[kind] ?? "○"), ` ${word}`);
}

/** Create a bar for the share *meter*, 0 to 1, with a text. */
export function meter({ meter: share, kind, text }) {
  const bar = svg(
    "svg",
    { class: `meter ${kind}`, width: 60, height: 10, "aria-hidden": "true" },
    svg("rect", { class: "whole", width: 60, height: 10, rx: 2 }),
    svg("rect", { class: "part", width: (60 * Math.min(1, share)).toFixed(1), height: 10, rx: 2 }),
  );
  return h("span", { class: "metered" }, bar, text);
}

/** Create a list of names and values. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(([, value]) => value !== undefined).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** Create an empty state: a sentence, and what to do about it. */
export function empty(sentence, what) {
  return h("div", { class: "empty" }, h("p", {}, sentence), what && h("p", { class: "muted" }, what));
}
