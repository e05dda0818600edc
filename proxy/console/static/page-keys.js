// Keys of a topic: busiest, hot, blocked, paused and parked; and details of one key.

import { get, path } from "./api.js";
import { commandLine, copyButton, shellLine } from "./copying.js";
import { badge, button, choice, empty, facts, h, labelled, retell } from "./dom.js";
import { age, count, figure, keyName, keyTitle, known, moment, of, share } from "./format.js";
import { headOf, keyLink, keysLacking, keyState, leftOut, messageLink } from "./groups.js";
import { askKey } from "./key-acts.js";
import { Table } from "./table.js";
import { topicChoice, withTopics } from "./topics.js";

export const title = "Keys";

const LISTS = [["top", "most unfinished"], ["hot", "hot"], ["blocked", "blocked"], ["paused", "paused"], ["parked", "parked"]];
const SHOWN = 100;
const EVENTS = 50;
const NOTHING = {
  top: ["No key has unfinished messages at this proxy.", "All messages read by this proxy are finished."],
  hot: ["No message was delivered in the last two minutes.", "Keys appear here while clients pull."],
  blocked: ["No key is blocked.", "A key appears here when its first message fails or is leased for too long."],
  paused: ["No key is paused.", "Find a key above to pause it."],
  parked: ["No key is parked.", "A key is parked by an operator, or when its message uses up its deliveries and on_exhausted is park."],
};

export function open(ctx) {
  return withTopics(ctx, page);
}

function page(ctx, topics) {
  const topic = topicChoice(ctx, topics);
  const list = choice(LISTS, NOTHING[ctx.query.get("list")] ? ctx.query.get("list") : "top");
  const search = h("input", { type: "search", value: ctx.query.get("key") ?? "", "data-search": "", autocomplete: "off", maxlength: 500 });
  // A field has no line ends: a key of the address counts as it is, until another one is typed.
  let wanted = ctx.query.get("key") ?? "";
  search.addEventListener("input", () => {
    wanted = search.value;
  });
  const one = h("section", { class: "one", hidden: true, "aria-label": "One key" });
  const note = h("p", { class: "muted" });
  const table = tableOf(ctx);

  async function look() {
    const asked = { topic: topic.value, list: list.value, key: wanted };
    ctx.remember({ ...asked, list: asked.list === "top" ? "" : asked.list });
    [table.nothing.firstChild.textContent, table.nothing.lastChild.textContent] = NOTHING[asked.list];
    await Promise.all([lookAtAll(asked), lookAtOne(asked)]);
  }

  function url(asked, name) {
    return path("groups", ctx.group, "topics", asked.topic, "keys", name);
  }

  async function lookAtAll(asked) {
    const parked = asked.list === "parked";
    // One row more than shown says whether there are more.
    const found = await get(url(asked, asked.list), { limit: SHOWN + 1 }, ctx);
    if (asked.topic !== topic.value || asked.list !== list.value) return; // another list was chosen meanwhile
    // Actions and links are those of the topic that was asked for, whatever is chosen by then.
    const rows = found.slice(0, SHOWN).map((row) => ({ ...(parked ? parkedRow(row) : row), topic: asked.topic }));
    table.update(rows);
    if (found.silent && !rows.length) table.nothing.firstChild.textContent = "No such key is known at the brokers that answer.";
    retell(note, ...shownOf(ctx, asked, rows, found.length > SHOWN), keysLacking(found.silent));
  }

  async function lookAtOne(asked) {
    const { key } = asked;
    if (!key) {
      one.hidden = true;
      one.dataset.key = "";
      return;
    }
    if (one.dataset.key !== key) one.hidden = true; // it shows another key
    const answers = await Promise.allSettled([get(url(asked, "show"), { key }, ctx), get(url(asked, "history"), { key, limit: EVENTS }, ctx)]);
    const [shown, past] = answers;
    if (shown.status === "rejected") throw shown.reason;
    if (asked.topic !== topic.value) return;
    const [rows, events] = [shown.value, past.value ?? null]; // null: they could not be read
    one.hidden = false;
    const silent = [...new Set([rows.silent, events?.silent].filter(Boolean))].join(", ");
    const said = JSON.stringify([asked.topic, silent, rows.map(({ age_ms, lease_ends_ms, retry_ms, ...rest }) => rest), events?.map((each) => each.at_ms)]);
    if (one.dataset.said !== said || one.dataset.key !== key) {
      Object.assign(one.dataset, { said, key }); // else keep the focus
      one.replaceChildren(...oneKey(ctx, asked.topic, key, rows, events), ...(silent ? [h("p", { class: "muted" }, keysLacking(silent).trim())] : []));
    }
    if (past.status === "rejected") throw past.reason;
  }

  const again = () => ctx.again();
  const another = () => {
    table.wait();
    again();
  };
  topic.addEventListener("change", () => {
    one.hidden = true;
    another();
  });
  list.addEventListener("change", another);
  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); again(); } },
    labelled("Topic", topic),
    labelled("Show", list),
    labelled("Key", search),
    h("button", { type: "submit" }, "Find"),
  );
  ctx.every(3000, look);
  return [form, one, table.element, note];
}

/** Return which keys the list has, and how to see the rest. */
function shownOf(ctx, { topic, list }, rows, more) {
  const recorded = list === "paused" || list === "parked";
  const shown = more ? `The first ${count(SHOWN)} keys` : rows.length ? of(rows.length, "key") : "Keys";
  const where = ` of the queues owned by this proxy${recorded ? ", and of those without an owner, as their last records list them" : ""}.`;
  const rest = !more
    ? []
    : list === "parked"
      ? [" There are more, page by page: ", h("a", { href: `#/groups/${encodeURIComponent(ctx.group)}/dead-letters?${new URLSearchParams({ parked_topic: topic })}` }, "all parked keys"), "."]
      : [" There are more: ", h("code", {}, shellLine(["orderlane", "keys", list, ctx.group, "--topic", topic, "--limit", "1000"])), "."];
  return [shown, where, ...rest, ...leftOut(ctx, [topic])];
}

/** Return the table of keys; a row has its topic. */
function tableOf(ctx) {
  return new Table({
    caption: "Keys",
    key: (row) => `${row.queue} ${row.key}`,
    nothing: "",
    advice: " ",
    columns: [
      { name: "key", label: "Key", mono: true, wide: true, cell: (row) => ({ href: keyLink(ctx.group, row.topic, row.key), text: keyName(row.key) }), copies: (row) => [row.key, `key ${row.key}`], order: (row) => row.key },
      { name: "state", label: "State", cell: keyState, order: (row) => row.state },
      { name: "head", label: "First message", mono: true, cell: (row) => head(ctx, row), order: (row) => row.offset },
      { name: "age", label: "Age", number: true, title: "Time since the first message was stored", cell: (row) => ofFirst(row, row.age_ms, age), order: (row) => row.age_ms },
      { name: "backlog", label: "Unfinished", number: true, cell: (row) => figure(row.backlog), order: (row) => row.backlog },
      { name: "attempts", label: "Attempts", number: true, cell: (row) => ofFirst(row, row.attempts, count), order: (row) => row.attempts },
      { name: "share", label: "Share", number: true, title: "Share of recent deliveries", cell: (row) => share(row.share), order: (row) => row.share },
      { name: "holder", label: "Held by", cell: (row) => row.holder ?? "–", order: (row) => row.holder ?? "" },
      { name: "error", label: "Last error", wide: true, cell: (row) => row.last_error || "–" },
      { name: "acts", label: "Actions", unseen: true, make: (current) => button("Actions…", () => askKey(ctx.group, current().topic, current(), () => ctx.again()), { class: "small" }) },
    ],
  });
}

/** Format a figure of the first message: a dash if it is known that the key has none. */
function ofFirst(row, value, write) {
  return row.backlog === 0 ? write(value) : known(value, write);
}

function head(ctx, row) {
  const place = headOf(row);
  return place === null ? ofFirst(row, null, count) : { href: messageLink(ctx.group, row.topic, place), text: place };
}

/** Convert a parked key to a row of the key table. */
export function parkedRow(row) {
  return { paused: false, offset: null, age_ms: null, backlog: row.copies === null || row.not_copied === null ? null : row.copies + row.not_copied, attempts: null, holder: null, last_error: row.reason, overdue: false, ...row };
}

function oneKey(ctx, topic, key, rows, events) {
  const nothing = !rows.length && empty(`${keyTitle(key)} has no unfinished messages at this proxy.`, "Check its spelling. It may be finished, or in a queue of another proxy.");
  return [
    h("h2", {}, ...(keyTitle(key) === keyName(key) ? [keyName(key)] : ["Key ", h("span", { class: "mono" }, key)]), copyButton(key, `key ${key}`)),
    commandLine(["key", "show", ctx.group, ...(key.startsWith("-") ? ["--topic", topic, "--", key] : [key, "--topic", topic])]),
    ...(nothing ? [nothing, button("Pause it anyway…", () => askKey(ctx.group, topic, { key, queue: "any", state: "none", paused: false, offset: null, backlog: 0 }, () => ctx.again()))] : rows.map((row) => card(ctx, topic, row))),
    events === null && h("p", { class: "muted" }, "Its recent events could not be read."),
    events?.length > 0 && h("h3", {}, events.length < EVENTS ? "Recent events" : `Recent events, the newest ${EVENTS}`),
    events?.length > 0 && h("ol", { class: "events" }, events.toReversed().map((each) => h("li", {}, h("time", {}, moment(each.at_ms)), " ", h("b", {}, each.what), each.offset === null ? "" : ` at ${each.offset}`, each.attempt === null ? "" : `, attempt ${each.attempt}`, each.by ? `, by ${each.by}` : "", each.detail ? `: ${each.detail}` : ""))),
  ].filter(Boolean);
}

function card(ctx, topic, row) {
  const place = headOf(row);
  return h(
    "div",
    { class: "card" },
    facts([
      ["State", badge(keyState(row))],
      ["Queue", row.queue],
      ["First message", place === null ? ofFirst(row, null, count) : h("a", { class: "mono", href: messageLink(ctx.group, topic, place) }, place)],
      ["Age", ofFirst(row, row.age_ms, age)],
      ["Unfinished", figure(row.backlog)],
      ["Parked copies", row.copies === 0 ? undefined : figure(row.copies)],
      ["Attempts", figure(row.attempts)],
      ["Held by", row.holder ?? "–"],
      ["Next retry in", row.retry_ms === null ? undefined : age(row.retry_ms)],
      ["Last error", row.last_error || undefined],
      ["By", row.by ? `${row.by}: ${row.reason}` : undefined],
      ["Note", row.note || undefined],
    ]),
    button("Actions…", () => askKey(ctx.group, topic, row, () => ctx.again()), { class: "main" }),
  );
}
