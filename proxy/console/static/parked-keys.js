// Parked keys of a group: filtered, page by page, redriven one by one or all together.

import { get, path, post } from "./api.js";
import { CommandLine } from "./copying.js";
import { confirm } from "./dialog.js";
import { button, choice, h, labelled, retell } from "./dom.js";
import { askExport } from "./exports.js";
import { count, figure, keyName, of } from "./format.js";
import { keyLink, keysLacking, leftOut, notDone } from "./groups.js";
import { askKey } from "./key-acts.js";
import { parkedRow } from "./page-keys.js";
import { Pager } from "./paging.js";
import { Table } from "./table.js";
import { knownTopics } from "./topics.js";

const SHOWN = 100;

/** Return the elements of the list, and what reads it. *address* has the filters. */
export function parkedKeys(ctx, address) {
  const url = (topic, ...more) => path("groups", ctx.group, "topics", topic, "keys", ...more);
  const topic = choice([["", "all topics"]], "");
  const reason = h("input", { type: "search", value: address.get("parked_reason"), autocomplete: "off", maxlength: 500 });
  const note = h("p", { class: "muted" });
  const pager = new Pager("parked keys");
  const redrive = button("Redrive all parked keys…", () => askRedriveAll(ctx, url, chosen()));
  const save = button("Export parked keys…", () => exportOf(ctx, url, chosen(), filter().parked_reason));
  redrive.disabled = save.disabled = true; // until the topics are known
  const command = new CommandLine();
  const table = new Table({
    caption: "Parked keys",
    key: (row) => `${row.topic} ${row.queue} ${row.key}`,
    nothing: "No key is parked in the queues of this proxy, or in those without an owner.",
    advice: "A key is parked by an operator, or when its message uses up its deliveries and on_exhausted is park.",
    columns: [
      { name: "key", label: "Key", mono: true, wide: true, cell: (row) => ({ href: keyLink(ctx.group, row.topic, row.key), text: keyName(row.key) }), copies: (row) => [row.key, `key ${row.key}`], order: (row) => row.key },
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
  let topics = null;

  const filter = () => ({ parked_topic: topic.value, parked_reason: reason.value.trim() });
  const chosen = () => (topic.value ? [topic.value] : topics);

  async function look() {
    await firstTopics();
    const { parked_reason: part } = filter();
    const [from, after] = begin();
    const { found, failed, silent } = await pageOf(chosen().slice(from), { reason: part, after });
    const rows = found.slice(0, SHOWN);
    table.nothing.firstChild.textContent = nothing(part, failed || silent);
    table.update(rows);
    const more = found.length > SHOWN;
    const last = rows.at(-1);
    pager.show({
      first: from || after ? address.with({ ...filter(), parked_from: "", parked_after: "" }) : null,
      next: more ? address.with({ ...filter(), parked_from: topic.value ? "" : last.topic, parked_after: `${last.queue}@${last.key}` }) : null,
    });
    redrive.disabled = save.disabled = rows.length === 0;
    const shown = rows.length ? `${of(rows.length, "parked key")}${more || from || after ? " on this page" : ""}${failed ? ", without those of a topic that cannot be read" : ""}.` : "";
    retell(note, shown, keysLacking(silent), ...leftOut(ctx, chosen()));
    if (failed) throw failed;
  }

  /** Return where the page begins: the place of its topic in ``chosen()``, and behind which key. */
  function begin() {
    const from = chosen().indexOf(address.get("parked_from") || chosen()[0]);
    return from < 0 ? [0, ""] : [from, address.get("parked_after")];
  }

  /**
   * Return the first keys of *topics* that match *reason*, behind *after* in the first of them: one
   * more than shown, if there is one, the error of a topic that cannot be read, and the brokers that
   * did not answer. Throws if no topic can be read.
   */
  async function pageOf(topics, { reason: part, after }) {
    const asked = topics.map((name, place) => get(url(name, "parked"), { limit: SHOWN + 1, reason: part, after: place ? "" : after }, ctx));
    const answers = await Promise.allSettled(asked);
    const lists = answers.filter((each) => each.status === "fulfilled").map((each) => each.value);
    const failed = answers.find((each) => each.status === "rejected")?.reason;
    if (failed && !lists.length) throw failed;
    const silent = [...new Set(lists.map((each) => each.silent).filter(Boolean))].join(", ");
    return { found: lists.flat(), failed, silent };
  }

  function nothing(part, partly) {
    if (!topics.length) return `This proxy has no topics of ${ctx.group}.`;
    const where = partly ? ", as far as they can be read" : "";
    if (part) return `No parked key has “${part}” in its reason${where}.`;
    return `No key is parked in the queues of this proxy, or in those without an owner${where}.`;
  }

  async function firstTopics() {
    if (topics) return;
    topics = await knownTopics(ctx);
    topic.append(...topics.map((name) => h("option", { value: name }, name)));
    if (topics.includes(address.get("parked_topic"))) topic.value = address.get("parked_topic");
    showCommand();
  }

  function showCommand() {
    command.show(["key", "parked", ctx.group, ["--topic", chosen().length === 1 ? chosen()[0] : ""], ["--reason", filter().parked_reason]]);
  }

  function filtered(event) {
    event?.preventDefault();
    address.remember({ ...filter(), parked_from: "", parked_after: "" });
    if (topics) showCommand();
    ctx.load(look);
  }

  topic.addEventListener("change", () => filtered());
  const form = h(
    "form",
    { class: "tools", role: "search", "aria-label": "Parked keys", onsubmit: filtered },
    labelled("Topic", topic),
    labelled("Reason of parking contains", reason),
    h("button", { type: "submit" }, "Filter parked keys"),
    redrive,
    save,
  );
  return { look, elements: [form, table.element, pager.element, note, command.element] };
}

/** Open the actions of a parked key, after looking up its first message. */
async function act(ctx, row) {
  const rows = await get(path("groups", ctx.group, "topics", row.topic, "keys", "show"), { key: row.key }, ctx);
  askKey(ctx.group, row.topic, rows.find((each) => each.queue === row.queue) ?? parkedRow(row), () => ctx.again());
}

function askRedriveAll(ctx, url, topics) {
  /** Return the answers for the topics of which this proxy owns queues, and the other errors. */
  async function ask({ reason, rate }, dryRun) {
    const done = await Promise.allSettled(topics.map((topic) => post(url(topic, "redrive-all"), { reason, rate, dry_run: dryRun })));
    const failed = done.filter((each) => each.status === "rejected").map((each) => each.reason);
    if (failed.length === done.length) throw failed[0];
    return { answers: done.filter((each) => each.status === "fulfilled").map((each) => each.value), failed };
  }
  confirm({
    title: `Redrive all parked keys of ${ctx.group}`,
    about: topics.length === 1 ? `topic ${topics[0]}` : `topics ${topics.join(", ")}`,
    done: () => ctx.again(),
    verbs: [
      {
        name: "redrive-all",
        label: "Redrive",
        danger: true,
        sentence: "The messages of each parked key are delivered in order; then the key continues with its later messages. The filter does not apply: all parked keys are redriven.",
        fields: [{ name: "rate", label: "Rate limit of each key, messages/s", value: "0", inputmode: "decimal", hint: "0: no limit", read: rateOf }],
        command: topics.length === 1 ? ({ rate }) => ["key", "redrive", ctx.group, "--all", "--topic", topics[0], ["--rate", rate || ""]] : undefined,
        preview: async (asked) => {
          const { answers, failed } = await ask(asked, true);
          const [keys, copies] = totals(answers);
          const left = [...failed.map((error) => error.message), ...notDone(answers)];
          if (!keys) throw new Error(["no parked key can be redriven now: those listed are being redriven already, or their copies are not complete yet", ...left].join("; "));
          return [
            ["Parked keys", count(keys), "being redriven"],
            ["Messages to deliver", count(copies), "0"],
            ...left.map((why) => ["Left as they are", "parked", why]),
          ];
        },
        act: async (asked) => {
          const { answers, failed } = await ask(asked, false);
          const [keys] = totals(answers);
          return [`Redriving ${of(keys, "key")}`, ...failed.map((error) => error.message), ...notDone(answers)].join("; ");
        },
      },
    ],
  });
}

function totals(answers) {
  const queues = answers.flatMap((each) => each.queues);
  return [queues.reduce((total, each) => total + each.keys.length, 0), queues.reduce((total, each) => total + each.copies, 0)];
}

/** Return the rate that *text* says, in messages per second. */
export function rateOf(text) {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0)) throw new Error(`invalid rate "${text}": give messages per second, or 0 for no limit`);
  return value;
}

function exportOf(ctx, url, topics, reason) {
  askExport({
    title: `Export the parked keys of ${ctx.group}`,
    thing: "parked key",
    about: "The file has one JSON object a line: a key of a queue of this proxy, or of one without an owner, with its state, copies and reason. The command asks all proxies.",
    urls: topics.map((topic) => url(topic, "parked", "export")),
    query: { reason },
    file: `${ctx.group}-parked.ndjson`,
    words: ["key", "parked", ctx.group, ["--topic", topics.length === 1 ? topics[0] : ""], ["--reason", reason], "-o", "json"],
    limited: false,
  });
}
