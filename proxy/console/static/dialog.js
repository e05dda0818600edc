// Confirmation of a change: the state before and after, and a reason for the audit topic.

import { CommandLine } from "./copying.js";
import { button, choice, h, labelled } from "./dom.js";
import { notice } from "./notices.js";

/** Show *dialog* until it is closed, then restore the focus. */
export function open(dialog) {
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  dialog.showModal();
}

/** A table of changes, one line each: name, before, after. */
export function changes(lines) {
  return h(
    "table",
    { class: "changes" },
    h("caption", { class: "unseen" }, "Changes"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Item"), h("th", { scope: "col" }, "Now"), h("th", { scope: "col" }, h("span", { class: "unseen" }, "becomes")), h("th", { scope: "col" }, "After"))),
    h("tbody", {}, lines.map(([name, old, then]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, String(old)), h("td", { "aria-hidden": "true" }, "→"), h("td", {}, h("b", {}, String(then)))))),
  );
}

/**
 * Confirm a verb, then run it. verbs: [{name, label, sentence, lines: values => [[item, now, after]],
 * fields: [{name, label, hint, type, value, read, options, rows}], preview: async values => lines,
 * act: async (values) => sentence, command: values => words of the command line, danger}]. With
 * several verbs the user chooses one. Every verb needs a reason.
 */
export function confirm({ title, about, verbs, done }) {
  let chosen = verbs[0];
  let previewed = false;
  const reason = h("input", { type: "text", name: "reason", required: true, maxlength: 1000, autocomplete: "off" });
  const plan = h("div", { class: "plan" });
  const fields = h("div", { class: "fields" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const does = h("button", { type: "submit" });
  const command = new CommandLine();
  const inputs = new Map();
  reason.addEventListener("input", () => showCommand());

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
          : field.rows
            ? h("textarea", { name: field.name, rows: field.rows, value: field.value ?? "", class: "mono", spellcheck: "false" })
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
    showCommand();
    plan.replaceChildren(h("p", {}, chosen.sentence), ...(lines?.length ? [changes(lines)] : []));
    does.textContent = chosen.preview ? "Preview" : chosen.label;
    does.className = chosen.danger && !chosen.preview ? "danger" : "main";
  }

  /** Show the command of the chosen verb, while the fields are valid. */
  function showCommand() {
    let words = null;
    try {
      words = chosen.command?.(values());
    } catch {
      // An invalid field: submitting says which.
    }
    command.element.hidden = !words;
    if (words) command.show([...words, "--reason", reason.value.trim() || "REASON"]);
  }

  async function submit(event) {
    event.preventDefault();
    wrong.textContent = "";
    does.disabled = true;
    try {
      const asked = values();
      if (!asked.reason) {
        reason.focus();
        throw new Error("a reason is required: it is stored in the audit topic");
      }
      if (chosen.preview && !previewed) {
        const verb = chosen;
        const lines = await verb.preview(asked);
        if (chosen !== verb || JSON.stringify(values()) !== JSON.stringify(asked)) return; // the input has changed since
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
      h("legend", {}, "Action"),
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
    labelled("Reason", reason, "One line, stored in the audit topic before the change."),
    command.element,
    wrong,
    h("div", { class: "buttons" }, button("Cancel", () => dialog.close()), does),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  show();
  open(dialog);
  (verbs.length > 1 ? form.querySelector("input[type=radio]") : (fields.querySelector("input,select,textarea") ?? reason)).focus();
}

/** Return links to the consoles of other proxies. */
export function elsewhere(owners) {
  return (owners ?? []).map((address) => h("span", {}, " ", h("a", { href: `//${address}/${location.hash}` }, `open the console of ${address}`)));
}
