// Keys: which are large, hot, blocked, paused, parked; and one of them whole.

import { get, path } from "./api.js";
import { badge, button, choice, empty, facts, h, labelled } from "./dom.js";
import { age, count, moment, share } from "./format.js";
import { headOf, keyLink, keyState, messageLink } from "./groups.js";
import { askKey } from "./key-acts.js";
import { Table } from "./table.js";
import { topicChoice, withTopics } from "./topics.js";

export const title = "Keys";

const LISTS = [["top", "most unfinished"], ["hot", "hottest lately"], ["blocked", "blocked"], ["paused", "paused"], ["parked", "parked"]];
const SHOWN = 100;
const NOTHING = {
  top: ["No key has unfinished messages here.", "All that this proxy read is done."],
  hot: ["Nothing was handed out in the last minute or two.", "Keys stand here while clients pull."],
  blocked: ["No key is blocked.", "One stands here once its first message fails, or is leased for too long."],
  paused: ["No key is paused.", "Find one above to pause it."],
  parked: ["No key is parked.", "Keys stand here after their messages failed for good, or a person parked them."],
};

export function open(ctx) {
  return withTopics(ctx, page);
}

function page(ctx, topics) {
  const topic = topicChoice(ctx, topics);
  const list = choice(LISTS, NOTHING[ctx.query.get("list")] ? ctx.query.get("list") : "top");
  const search = h("input", { type: "search", value: ctx.query.get("key") ?? "", "data-search": "", autocomplete: "off", maxlength: 500 });
  const one = h("section", { class: "one", hidden: true, "aria-label": "One key" });
  const table = tableOf(ctx, () => topic.value);
  const url = (name) => path("groups", ctx.group, "topics", topic.value, "keys", name);

  async function look() {
    const key = search.value;
    ctx.remember({ topic: topic.value, list: list.value === "top" ? "" : list.value, key });
    [table.nothing.firstChild.textContent, table.nothing.lastChild.textContent] = NOTHING[list.value];
    await Promise.all([lookAtAll(), lookAtOne(key)]);
  }

  async function lookAtAll() {
    const rows = await get(url(list.value), list.value === "parked" ? {} : { limit: SHOWN }, ctx);
    table.update(list.value === "parked" ? rows.map(parkedRow) : rows);
  }

  async function lookAtOne(key) {
    if (!key) {
      one.hidden = true;
      one.dataset.key = "";
      return;
    }
    const [rows, events] = await Promise.all([get(url("show"), { key }, ctx), get(url("history"), { key, limit: 50 }, ctx)]);
    one.hidden = false;
    const said = JSON.stringify([rows.map(({ age_ms, lease_ends_ms, retry_ms, ...rest }) => rest), events.length]);
    if (one.dataset.said === said && one.dataset.key === key) return; // the focus stays where it is
    Object.assign(one.dataset, { said, key });
    one.replaceChildren(...oneKey(ctx, topic.value, key, rows, events));
  }

  const again = () => ctx.again();
  topic.addEventListener("change", again);
  list.addEventListener("change", again);
  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); again(); } },
    labelled("Topic", topic),
    labelled("Show keys that are", list),
    labelled("Find a key", search),
    h("button", { type: "submit" }, "Find"),
  );
  ctx.every(3000, look);
  return [form, one, table.element, h("p", { class: "muted" }, `At most ${SHOWN} keys, of the queues that this proxy owns.`)];
}

function tableOf(ctx, topic) {
  return new Table({
    caption: "Keys",
    key: (row) => `${row.queue} ${row.key}`,
    nothing: "",
    advice: " ",
    columns: [
      { name: "key", label: "Key", mono: true, wide: true, cell: (row) => ({ href: keyLink(ctx.group, topic(), row.key), text: row.key === "" ? "(empty)" : row.key }), order: (row) => row.key },
      { name: "state", label: "State", cell: keyState, order: (row) => row.state },
      { name: "head", label: "First message", mono: true, cell: (row) => head(ctx, topic(), row), order: (row) => row.offset },
      { name: "age", label: "Age", number: true, title: "Since the first message was stored", cell: (row) => age(row.age_ms), order: (row) => row.age_ms },
      { name: "backlog", label: "Backlog", number: true, cell: (row) => count(row.backlog), order: (row) => row.backlog },
      { name: "attempts", label: "Attempts", number: true, cell: (row) => count(row.attempts), order: (row) => row.attempts },
      { name: "share", label: "Share", number: true, title: "Of what was handed out lately", cell: (row) => share(row.share), order: (row) => row.share },
      { name: "holder", label: "Held by", cell: (row) => row.holder ?? "–", order: (row) => row.holder ?? "" },
      { name: "error", label: "Last error", wide: true, cell: (row) => row.last_error || "–" },
      { name: "acts", label: "Actions", unseen: true, make: (current) => button("Act…", () => askKey(ctx.group, topic(), current(), () => ctx.again()), { class: "small" }) },
    ],
  });
}

function head(ctx, topic, row) {
  const place = headOf(row);
  return place === null ? "–" : { href: messageLink(ctx.group, topic, place), text: place };
}

/** A parked key as rows of keys are. */
export function parkedRow(row) {
  return { paused: false, offset: null, age_ms: null, backlog: row.copies + row.not_copied, attempts: null, holder: null, last_error: row.reason, overdue: false, ...row };
}

function oneKey(ctx, topic, key, rows, events) {
  const nothing = !rows.length && empty(`Nothing is unfinished of ${key} in the queues of this proxy.`, "It may be pasted wrong, be done, or stand in a queue of another proxy.");
  return [
    h("h2", {}, "Key ", h("span", { class: "mono" }, key)),
    ...(nothing ? [nothing, button("Pause it all the same…", () => askKey(ctx.group, topic, { key, queue: "any", state: "none", paused: false, offset: null, backlog: 0 }, () => ctx.again()))] : rows.map((row) => card(ctx, topic, row))),
    events.length > 0 && h("h3", {}, "What happened to it lately"),
    events.length > 0 && h("ol", { class: "events" }, events.toReversed().map((each) => h("li", {}, h("time", {}, moment(each.at_ms)), " ", h("b", {}, each.what), each.offset === null ? "" : ` at ${each.offset}`, each.attempt === null ? "" : `, attempt ${each.attempt}`, each.by ? `, by ${each.by}` : "", each.detail ? `: ${each.detail}` : ""))),
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
      ["First message", place === null ? "–" : h("a", { class: "mono", href: messageLink(ctx.group, topic, place) }, place)],
      ["Age", age(row.age_ms)],
      ["Backlog", count(row.backlog)],
      ["Parked copies", row.copies ? count(row.copies) : undefined],
      ["Attempts", count(row.attempts)],
      ["Held by", row.holder ?? "–"],
      ["Again in", row.retry_ms === null ? undefined : age(row.retry_ms)],
      ["Last error", row.last_error || undefined],
      ["By", row.by ? `${row.by}: ${row.reason}` : undefined],
      ["Note", row.note || undefined],
    ]),
    button("Act…", () => askKey(ctx.group, topic, row, () => ctx.again()), { class: "main" }),
  );
}
