// Token dialog for proxies with authentication. The token is kept until the tab is closed.

import { ApiError, get, token } from "./api.js";
import { button, h, labelled } from "./dom.js";
import { open } from "./dialog.js";

let asking = false;
let declined = false;

/**
 * Ask for a token, check it, and call *given* once the proxy accepts it. One dialog at a time. Once
 * the user has closed it without a token, it opens only if it is *wanted* by the user: every request
 * without a token is refused.
 */
export function askToken(given, { wanted = false } = {}) {
  if (asking || (declined && !wanted)) return;
  asking = true;
  const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
  const wrong = h("p", { class: "wrong", role: "alert" });
  let accepted = false;

  async function submit(event) {
    event.preventDefault();
    const before = token.get();
    if (!/^[\x21-\x7e]+$/.test(input.value)) {
      wrong.textContent = "invalid token: use printable ASCII characters without spaces";
      return;
    }
    token.set(input.value);
    try {
      await get("api/groups");
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        if (before) token.set(before);
        else token.clear();
        wrong.textContent = "unknown token: the proxy refused it";
        input.focus();
        return;
      }
    }
    accepted = true;
    dialog.close();
    given();
  }

  const form = h(
    "form",
    { novalidate: true, onsubmit: submit },
    h("h2", { id: "token-title" }, "Token required"),
    h("p", {}, "Enter the token of a principal with the right ", h("code", {}, "admin"), ". It is kept until this tab is closed."),
    labelled("Token", input),
    wrong,
    h("div", { class: "buttons" }, button("Cancel", () => dialog.close()), h("button", { type: "submit", class: "main" }, "Sign in")),
  );
  const dialog = h("dialog", { "aria-labelledby": "token-title" }, form);
  dialog.addEventListener("close", () => {
    asking = false;
    declined = !accepted;
  });
  open(dialog);
  input.focus();
}
