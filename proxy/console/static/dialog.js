// Asking before something is changed: what is, what will be, and why. The reason goes to the audit.

import { button, choice, h, labelled } from "./dom.js";
import { notice } from "./notices.js";

/** Show *dialog* until it is closed; the focus goes back to where it was. */
export function open(dialog) {
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  dialog.showModal();
}

/** From → to, one line each. */
export function changes(lines) {
  return h(
    "table",
    { class: "changes" },
    h("caption", { class: "unseen" }, "What will change"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "What"), h("th", { scope: "col" }, "Now"), h("th", { scope: "col" }, h("span", { class: "unseen" }, "becomes")), h("th", { scope: "col" }, "Then"))),
    h("tbody", {}, lines.map(([name, old, then]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, String(old)), h("td", { "aria-hidden": "true" }, "→"), h("td", {}, h("b", {}, String(then)))))),
  );
}

/**
 * Ask, then do. verbs: [{name, label, sentence, lines: values => [[what, now, then]], fields: [{name,
 * label, hint, type, value, read}], preview: async values => lines, act: async (values) => sentence,
 * danger}]. One verb is asked for at once; of several one is chosen. Every act gets a reason.
 */
export function confirm({ title, about, verbs, done }) {
  let chosen = verbs[0];
  let previewed = false;
  const reason = h("input", { type: "text", name: "reason", required: true, maxlength: 1000, autocomplete: "off" });
  const plan = h("div", { class: "plan" });
  const fields = h("div", { class: "fields" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const does = h("button", { type: "submit" });
  const inputs = new Map();

  function values() {
    const found = { reason: reason.value.trim() };
    for (const [field, input] of inputs) {
      const value = (field.read ?? ((text) => text))(input.type === "checkbox" ? input.checked : input.value);
      if (value !== undefined) found[field.name] = value;
    }
    return found;
  }

  function show() {
    previewed = false;
    wrong.textContent = "";
    inputs.clear();
    fields.replaceChildren(
      ...(chosen.fields ?? []).map((field) => {
        const input = field.options
          ? choice(field.options, field.value, { name: field.name })
          : h("input", { type: field.type ?? "text", name: field.name, value: field.value ?? "", checked: field.checked, inputmode: field.inputmode, autocomplete: "off" });
        input.addEventListener("input", () => plan_(chosen.lines?.()));
        inputs.set(field, input);
        return labelled(field.label, input, field.hint);
      }),
    );
    plan_(chosen.lines?.());
  }

  function plan_(lines) {
    previewed = false;
    plan.replaceChildren(h("p", {}, chosen.sentence), ...(lines?.length ? [changes(lines)] : []));
    does.textContent = chosen.preview ? "Preview" : chosen.label;
    does.className = chosen.danger && !chosen.preview ? "danger" : "main";
  }

  async function submit(event) {
    event.preventDefault();
    wrong.textContent = "";
    does.disabled = true;
    try {
      const asked = values();
      if (!asked.reason) {
        reason.focus();
        throw new Error("a reason is missing: one line that says why, for the audit");
      }
      if (chosen.preview && !previewed) {
        const verb = chosen;
        const lines = await verb.preview(asked);
        if (chosen !== verb || JSON.stringify(values()) !== JSON.stringify(asked)) return; // that is not asked for any more
        plan_(lines);
        previewed = true;
        does.textContent = chosen.label;
        does.className = chosen.danger ? "danger" : "main";
        return;
      }
      const sentence = await chosen.act(asked);
      dialog.close();
      notice(sentence ?? `${chosen.label}: done`);
      done?.();
    } catch (error) {
      wrong.replaceChildren(error.message, ...elsewhere(error.owners));
    } finally {
      does.disabled = false;
    }
  }

  const pick =
    verbs.length > 1 &&
    h(
      "fieldset",
      { class: "verbs" },
      h("legend", {}, "What to do"),
      verbs.map((verb) =>
        h("label", {}, h("input", { type: "radio", name: "verb", value: verb.name, checked: verb === chosen, onchange: () => { chosen = verb; show(); } }), ` ${verb.label}`),
      ),
    );
  const form = h(
    "form",
    { novalidate: true, onsubmit: submit },
    h("h2", { id: "dialog-title" }, title),
    about && h("p", { class: "muted mono" }, about),
    pick,
    fields,
    plan,
    labelled("Reason", reason, "One line. It is stored in the audit before anything is done."),
    wrong,
    h("div", { class: "buttons" }, button("Cancel", () => dialog.close()), does),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  show();
  open(dialog);
  (verbs.length > 1 ? form.querySelector("input[type=radio]") : (fields.querySelector("input,select") ?? reason)).focus();
}

/** Links to the consoles of other proxies. */
export function elsewhere(owners) {
  return (owners ?? []).map((address) => h("span", {}, " ", h("a", { href: `//${address}/${location.hash}` }, `open the console of ${address}`)));
}
