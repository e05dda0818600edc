// Notices of completed actions: shown for a few seconds and announced to screen readers.

import { h } from "./dom.js";

const STAYS_MS = 8000;

export function notice(sentence) {
  const shown = h("p", { class: "notice" }, sentence);
  document.getElementById("notices").append(shown);
  setTimeout(() => shown.remove(), STAYS_MS);
}
