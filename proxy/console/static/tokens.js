// Asking for a token where the proxy wants one. It stays in this tab and ends with it.

import { ApiError, get, token } from "./api.js";
import { button, h, labelled } from "./dom.js";
import { open } from "./dialog.js";

let asking = false;

/** Ask, try it, and call *given* if the proxy knows it. Asked once at a time. */
export function askToken(given) {
  if (asking) return;
  asking = true;
  const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
  const wrong = h("p", { class: "wrong", role: "alert" });

  async function submit(event) {
    event.preventDefault();
    const before = token.get();
    if (!/^[\x21-\x7e]+$/.test(input.value)) {
      wrong.textContent = "a token has letters, digits and signs, and no blanks";
      return;
    }
    token.set(input.value);
    try {
      await get("api/groups");
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        if (before) token.set(before);
        else token.clear();
        wrong.textContent = "the proxy does not know this token";
        input.focus();
        return;
      }
    }
    dialog.close();
    given();
  }

  const form = h(
    "form",
    { novalidate: true, onsubmit: submit },
    h("h2", { id: "token-title" }, "This proxy asks who you are"),
    h("p", {}, "Give the token of a principal that may ", h("code", {}, "admin"), ". It is kept for this tab alone."),
    labelled("Token", input),
    wrong,
    h("div", { class: "buttons" }, button("Cancel", () => dialog.close()), h("button", { type: "submit", class: "main" }, "Use it")),
  );
  const dialog = h("dialog", { "aria-labelledby": "token-title" }, form);
  dialog.addEventListener("close", () => {
    asking = false;
  });
  open(dialog);
  input.focus();
}
