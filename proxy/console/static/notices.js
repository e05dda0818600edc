// Notices of completed actions: shown for a few seconds and announced to screen readers.

import { h } from "./dom.js";

const STAYS_MS = 8000;

export function notice(sentence) {
  // Below an open dialog a notice would neither be seen nor announced.
  const dialog = document.querySelector("dialog[open]");
  const shown = h("p", { class: "notice", role: dialog && "status" }, sentence);
  (dialog ?? document.getElementById("notices")).append(shown);
  setTimeout(() => shown.remove(), STAYS_MS);
}
