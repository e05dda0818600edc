// The body of a message as JSON, text or hex.

import { h, visible } from "./dom.js";
import { bytes as size } from "./format.js";

const MOST_BYTES = 64 * 1024;
const ROW = 16;

/** Show the body of *message*, an API response with body or body_base64. */
export function bodyView(message) {
  const content = bytesOf(message);
  const text = message.body ?? null;
  const forms = [];
  if (isJson(text)) forms.push(["JSON", () => indented(text)]);
  if (text !== null) forms.push(["Text", () => text.slice(0, MOST_BYTES)]);
  forms.push(["Hex", () => hex(content)]);
  const shown = h("pre", { class: "body", tabindex: "0", "aria-label": "Body" });
  const name = `form-${Math.random().toString(36).slice(2)}`;
  const show = (form) => {
    shown.textContent = visible(form[1]());
  };
  show(forms[0]);
  return h(
    "div",
    {},
    h(
      "fieldset",
      { class: "forms" },
      h("legend", {}, `Body, ${size(content.length)}${message.compressed ? ", compressed in an unsupported format" : ""}`),
      forms.map((form, index) => h("label", {}, h("input", { type: "radio", name, checked: index === 0, onchange: () => show(form) }), ` ${form[0]}`)),
    ),
    shown,
    content.length > MOST_BYTES && h("p", { class: "muted" }, `Text and hex show the first ${size(MOST_BYTES)}.`),
  );
}

function bytesOf(message) {
  if (message.body !== null && message.body !== undefined) return new TextEncoder().encode(message.body);
  return Uint8Array.from(atob(message.body_base64 ?? ""), (sign) => sign.charCodeAt(0));
}

function isJson(text) {
  if (text === null) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const TOKEN = /("(?:[^"\\]|\\.)*")|([{[])\s*([}\]])|[{}[\],:]|\s+/g;
const DEEPEST = 40;

/** Indent JSON. Numbers are copied as text, because a JavaScript number cannot hold 64 bits. */
function indented(text) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
  return text.replace(TOKEN, (token, string, opening, closing) => {
    if (string) return string.includes("\\") ? JSON.stringify(JSON.parse(string)) : string;
    if (opening) return opening + closing;
    if (token === "{" || token === "[") {
      depth += 1;
      return token + line();
    }
    if (token === "}" || token === "]") {
      depth -= 1;
      return line() + token;
    }
    if (token === ",") return token + line();
    return token === ":" ? ": " : "";
  });
}

function hex(content) {
  const lines = [];
  for (let at = 0; at < Math.min(content.length, MOST_BYTES); at += ROW) {
    const row = [...content.slice(at, at + ROW)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const signs = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(ROW * 3 - 1)}  ${signs}`);
  }
  return lines.join("\n") || "(empty)";
}

/** Show the properties of a message as a table. */
export function propertiesView(properties) {
  const names = Object.keys(properties).sort();
  return h(
    "details",
    {},
    h("summary", {}, `Properties (${names.length})`),
    h("dl", { class: "properties" }, names.map((name) => h("div", {}, h("dt", {}, name), h("dd", { class: "mono" }, properties[name])))),
  );
}
