// Buttons that copy a text, and the command line with the same effect as a page.

import { h, svg } from "./dom.js";
import { notice } from "./notices.js";

const DEFAULT_HTTP = "127.0.0.1:9714";
const PLAIN = /^[\w@%+=:,./-]+$/;

/** Create a button that copies *text*; *what* names it, such as "key order-17". */
export function copyButton(text, what) {
  const button = h(
    "button",
    { type: "button", class: "copy", "aria-label": `Copy ${what}`, title: `Copy ${what}` },
    svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, svg("rect", { x: 5.5, y: 5.5, width: 8, height: 8, rx: 1.5 }), svg("path", { d: "M3.5 10.5h-1v-8h8v1" })),
  );
  button.addEventListener("click", async () => {
    notice((await copied(text)) ? `Copied ${what}` : "This browser does not allow copying here: select the text and copy it");
    button.focus();
  });
  return button;
}

/** Copy *text*; return whether that succeeded. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text); // pages without TLS have no clipboard object
  }
}

function copiedBySelection(text) {
  const area = h("textarea", { class: "unseen", value: text, readonly: true, "aria-hidden": "true" });
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** Return *words* as a line of a POSIX shell. */
export function shellLine(words) {
  return words.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** A command line of orderlane with a copy button. */
export class CommandLine {
  constructor() {
    this.element = h("p", { class: "command" });
  }

  /** Show ``orderlane`` with *words*; empty options, as ["--key", ""], are left out. */
  show(words) {
    const given = words.filter((word) => !Array.isArray(word) || (word[1] !== "" && word[1] !== null && word[1] !== undefined)).flat();
    const here = location.host === DEFAULT_HTTP ? [] : ["--http", location.host];
    const line = ["orderlane", ...given.map(String)];
    line.splice(line.includes("--") ? line.indexOf("--") : line.length, 0, ...here); // behind "--" are no options
    const text = shellLine(line);
    if (this.text === text) return; // keep the focus
    this.text = text;
    // A line may end between words only, not after the hyphens of an option.
    const parts = line.flatMap((word) => [h("span", { class: "word" }, shellLine([word])), " "]).slice(0, -1);
    this.element.replaceChildren(h("span", { class: "muted" }, "Command: "), h("code", {}, parts), copyButton(text, "the command"));
  }
}

/** Return a paragraph with the command line of *words*. */
export function commandLine(words) {
  const line = new CommandLine();
  line.show(words);
  return line.element;
}
