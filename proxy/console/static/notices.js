// What was done, in a sentence that stays for a while and is read aloud.

import { h } from "./dom.js";

const STAYS_MS = 8000;

export function notice(sentence) {
  const shown = h("p", { class: "notice" }, sentence);
  document.getElementById("notices").append(shown);
  setTimeout(() => shown.remove(), STAYS_MS);
}
