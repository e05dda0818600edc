// Dead letters and parked keys of a group.

import { get, path, post } from "./api.js";
import { bodyView, propertiesView } from "./body.js";
import { confirm } from "./dialog.js";
import { badge, button, facts, h, labelled } from "./dom.js";
import { count, figure, moment, of } from "./format.js";
import { keyLink } from "./groups.js";
import { askKey } from "./key-acts.js";
import { parkedRow } from "./page-keys.js";
import { Table } from "./table.js";
import { knownTopics } from "./topics.js";

export const title = "Dead letters and parked keys";

export function open(ctx) {
  return [h("h2", {}, "Parked keys"), ...parked(ctx), h("h2", {}, "Dead letters"), ...letters(ctx)];
}

function parked(ctx) {
  const table = new Table({
    caption: "Parked keys",
    key: (row) => `${row.topic} ${row.queue} ${row.key}`,
    nothing: "No key is parked in the queues of this proxy, or in those without an owner.",
    advice: "A key is parked by an operator, or when its message uses up its deliveries and on_exhausted is park.",
    columns: [
      { name: "key", label: "Key", mono: true, wide: true, cell: (row) => ({ href: keyLink(ctx.group, row.topic, row.key), text: row.key }), order: (row) => row.key },
      { name: "state", label: "State", cell: (row) => ({ word: row.state, kind: row.state === "parked" ? "bad" : "busy" }), order: (row) => row.state },
      { name: "topic", label: "Topic", cell: (row) => row.topic, order: (row) => row.topic },
      { name: "queue", label: "Queue", cell: (row) => row.queue, order: (row) => row.queue },
      { name: "copies", label: "Parked copies", number: true, cell: (row) => figure(row.copies), order: (row) => row.copies },
      { name: "not", label: "Not copied yet", number: true, cell: (row) => figure(row.not_copied), order: (row) => row.not_copied },
      { name: "by", label: "By", cell: (row) => row.by || "–" },
      { name: "why", label: "Reason", wide: true, cell: (row) => row.reason || "–" },
      { name: "acts", label: "Actions", unseen: true, make: (current) => button("Actions…", () => ctx.load(() => act(ctx, current())), { class: "small" }) },
    ],
  });
  ctx.every(3000, async () => {
    const topics = await knownTopics(ctx);
    const found = await Promise.all(topics.map((topic) => get(path("groups", ctx.group, "topics", topic, "keys", "parked"), {}, ctx)));
    table.update(found.flat());
  });
  return [table.element];
}

/** Open the actions of a parked key, after looking up its first message. */
async function act(ctx, row) {
  const rows = await get(path("groups", ctx.group, "topics", row.topic, "keys", "show"), { key: row.key }, ctx);
  askKey(ctx.group, row.topic, rows.find((each) => each.queue === row.queue) ?? parkedRow(row), () => ctx.again());
}

function letters(ctx) {
  const url = (...more) => path("groups", ctx.group, "dead-letters", ...more);
  const topic = h("input", { type: "search", value: ctx.query.get("topic") ?? "", autocomplete: "off" });
  const key = h("input", { type: "search", value: ctx.query.get("key") ?? "", autocomplete: "off", "data-search": "" });
  const all = h("input", { type: "checkbox", checked: ctx.query.get("all") === "true" });
  const head = h("div", { class: "tools" });
  const note = h("p", { class: "muted" });
  const whole = h("section", { class: "one", hidden: true, "aria-label": "One dead letter" });
  const table = new Table({
    caption: "Dead letters",
    key: (row) => row.dead_letter,
    nothing: "No dead letters.",
    advice: "A message becomes a dead letter when it uses up its deliveries and on_exhausted is dead_letter. Later messages of its key continue.",
    columns: [
      { name: "letter", label: "Dead letter", mono: true, cell: (row) => row.dead_letter, order: (row) => row.store_ms },
      { name: "topic", label: "Original topic", cell: (row) => row.topic ?? "–", order: (row) => row.topic ?? "" },
      { name: "key", label: "Key", mono: true, wide: true, cell: (row) => row.key ?? "–", order: (row) => row.key ?? "" },
      { name: "attempts", label: "Attempts", number: true, cell: (row) => count(row.attempts), order: (row) => row.attempts },
      { name: "reason", label: "Reason", wide: true, cell: (row) => row.reason ?? "–" },
      { name: "failed", label: "Last failure", number: true, cell: (row) => moment(row.last_failure_ms ?? row.store_ms), order: (row) => row.last_failure_ms ?? row.store_ms },
      { name: "redrives", label: "Redrives", number: true, cell: (row) => count(row.redrives), order: (row) => row.redrives },
      { name: "acts", label: "Actions", unseen: true, make: (current) => button("View", () => ctx.load(() => view(current().dead_letter)), { class: "small" }) },
    ],
  });

  async function view(letter) {
    const found = await get(url("show"), { dead_letter: letter }, ctx);
    whole.hidden = false;
    whole.replaceChildren(...wholeLetter(found));
    whole.scrollIntoView({ block: "nearest" });
  }

  async function look() {
    const query = { topic: topic.value.trim(), key: key.value.trim(), all: all.checked ? "true" : "" };
    ctx.remember(query);
    let found;
    try {
      found = await get(url(), query, ctx);
    } catch (error) {
      if (error.status !== 404) throw error;
      found = { dead_letters: [], waiting: 0, complete: true, redrive: null }; // no dead-letter topic yet
    }
    table.update(found.dead_letters);
    const said = JSON.stringify([found.redrive, found.waiting > 0]);
    if (head.dataset.said !== said) head.replaceChildren(...redriveOf(ctx, url, found));
    head.dataset.said = said;
    note.textContent = `${of(found.waiting, "dead letter")} to redrive${found.complete ? "" : "; older ones were not searched"}.`;
  }

  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); ctx.load(look); } },
    labelled("Key", key),
    labelled("Original topic", topic),
    labelled("Include redriven", all),
    h("button", { type: "submit" }, "Filter"),
  );
  ctx.every(5000, look);
  return [form, whole, table.element, note, head];
}

function redriveOf(ctx, url, { waiting, redrive }) {
  const running = redrive && redrive.state === "running";
  const again = () => ctx.again();
  const parts = [];
  if (redrive) parts.push(h("span", {}, "Last redrive: ", badge({ word: redrive.state, kind: running ? "busy" : "idle" }), ` ${count(redrive.sent)} sent, ${count(redrive.skipped)} skipped, ${count(redrive.left)} left, by ${redrive.by ?? "–"}${redrive.note ? `: ${redrive.note}` : ""}`));
  if (running) parts.push(button("Stop…", () => confirm({ title: "Stop the redrive", done: again, verbs: [{ name: "stop", label: "Stop", sentence: "No further dead letters are sent. The next redrive continues from here.", lines: () => [["Redrive", redrive.state, "stopped"]], act: async (asked) => `Stopped: ${count((await post(url("stop"), asked)).left)} left` }] })));
  if (waiting > 0 && !running) parts.push(button("Redrive all…", () => confirm({ title: `Redrive the dead letters of ${ctx.group}`, done: again, verbs: [redriveAll(url)] })));
  return parts;
}

function redriveAll(url) {
  const sent = ({ reason, rate }) => ({ reason, rate });
  return {
    name: "redrive",
    label: "Redrive",
    danger: true,
    sentence: "Each dead letter is sent to its original topic as a new message, one at a time. Other groups of that topic receive it too.",
    fields: [{ name: "rate", label: "Rate limit, messages/s", value: "0", inputmode: "decimal", hint: "0: no limit", read: Number }],
    preview: async (asked) => [["Dead letters left", count((await post(url("redrive"), { ...sent(asked), dry_run: true })).left), "0, all sent"]],
    act: async (asked) => {
      const did = await post(url("redrive"), sent(asked));
      return `Redrive ${did.state}: ${count(did.left)} left`;
    },
  };
}

function wholeLetter(letter) {
  return [
    h("h2", {}, "Dead letter ", h("span", { class: "mono" }, letter.dead_letter)),
    facts([
      ["Origin", `${letter.topic ?? "unknown"} ${letter.origin ?? ""}`],
      ["Key", letter.key ?? "none"],
      ["Attempts", count(letter.attempts)],
      ["Reason", letter.reason ?? "unknown"],
      ["First failure", moment(letter.first_failure_ms)],
      ["Last failure", moment(letter.last_failure_ms)],
      ["Redrives", count(letter.redrives)],
      ["Id", h("span", { class: "mono" }, letter.message_id)],
    ]),
    bodyView(letter),
    propertiesView(letter.properties),
  ];
}

