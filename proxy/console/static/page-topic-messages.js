// Messages of a topic by position, time, key, id or text, page by page; followed live on demand.

import { ApiError, get, path } from "./api.js";
import { CommandLine } from "./copying.js";
import { button, choice, h, labelled } from "./dom.js";
import { askExport } from "./exports.js";
import { bytes, count, moment, of, silentOf } from "./format.js";
import { Followed } from "./following.js";
import { Pager } from "./paging.js";
import { OneMessage } from "./one-message.js";
import { Table } from "./table.js";
import { askMessage } from "./topic-acts.js";
import { givenTime, zoneName } from "./zone.js";

export const title = "Messages";

const SHOWN = 100;
/** Most requests for the newest messages that match: the first page may end before the topic does. */
const NEWEST_PAGES = 4;
const WAYS = [
  ["newest", "newest messages"],
  ["oldest", "oldest messages"],
  ["offset", "from an offset"],
  ["time", "from a time"],
  ["key", "with a message key"],
  ["id", "with a message id"],
];
/** Label and example of the value that a way needs. */
const VALUES = {
  offset: [() => "Offset of the queue", "812"],
  time: [() => `Time, ${zoneName()}`, "2026-01-31 14:00"],
  key: [() => "Message key", ""],
  id: [() => "Message id", ""],
};

export function open(ctx) {
  const asked = (name) => ctx.query.get(name) ?? "";
  const url = path("topics", ctx.topic, "messages");
  const by = choice(WAYS, WAYS.some(([way]) => way === asked("by")) ? asked("by") : "newest");
  const queue = h("input", { type: "text", value: asked("queue"), autocomplete: "off", maxlength: 255, list: "queues" });
  const known = h("datalist", { id: "queues" });
  const value = h("input", { type: "text", value: asked("value"), autocomplete: "off", maxlength: 500 });
  const valueField = labelled("Value", value);
  const contains = h("input", { type: "search", value: asked("contains"), "data-search": "", autocomplete: "off", maxlength: 500 });
  const note = h("p", { class: "muted", role: "status" });
  const pager = new Pager("messages");
  const command = new CommandLine();
  const one = new OneMessage(ctx, (place) => remember({ view: place }));
  let followed = new Followed(ctx, url);
  const follow = button("Follow new messages", () => turn(!followed.on), { "aria-pressed": "false" });
  let page = null;
  let looks = 0;

  const table = new Table({
    caption: "Messages",
    key: (row) => row.message,
    nothing: "No messages found.",
    advice: " ",
    columns: [
      { name: "message", label: "Message", mono: true, cell: (row) => row.message, copies: (row) => [row.message, `location ${row.message}`], order: (row) => row.offset },
      { name: "stored", label: "Stored", number: true, cell: (row) => moment(row.store_ms), order: (row) => row.store_ms },
      { name: "keys", label: "Message key", mono: true, wide: true, cell: (row) => row.keys ?? "–", copies: (row) => (row.keys ? [row.keys, `key ${row.keys}`] : null), order: (row) => row.keys ?? "" },
      { name: "tag", label: "Tag", cell: (row) => row.tag ?? "–" },
      { name: "size", label: "Size", number: true, cell: (row) => bytes(row.bytes), order: (row) => row.bytes },
      { name: "preview", label: "Body", mono: true, wide: true, cell: (row) => row.preview ?? "(not text)" },
      { name: "acts", label: "Actions", unseen: true, make: (current) => button("View", () => ctx.load(() => one.show(current().message)), { class: "small" }) },
    ],
  });

  function shownQuery() {
    const way = by.value;
    return { by: way === "newest" ? "" : way, queue: byIndex() ? "" : queue.value.trim(), value: VALUES[way] ? value.value.trim() : "", contains: byIndex() ? "" : contains.value.trim() };
  }

  function byIndex() {
    return by.value === "key" || by.value === "id";
  }

  function remember(more = {}) {
    ctx.remember({ ...shownQuery(), positions: ctx.query.get("positions"), follow: followed.on ? "true" : "", view: one.place, ...more });
  }

  /** Return the query of the API for what the form says. */
  function wanted() {
    const { value: given, queue: place, contains: part } = shownQuery();
    const begin = { offset: () => ({ offset: offsetOf(given) }), time: () => ({ time_ms: givenTime(given) }), oldest: () => ({ start: "oldest" }), newest: () => ({ start: "newest" }), key: () => ({ key: needed(given, "message key") }), id: () => ({ id: needed(given, "message id") }) }[by.value]();
    return { ...begin, queue: place, contains: part };
  }

  async function look() {
    fitForm();
    const positions = ctx.query.get("positions");
    const query = wanted();
    const from = positions ? { positions, queue: query.queue, contains: query.contains } : query;
    const mine = (looks += 1);
    const found = newestFirst() ? await newest(ctx, url, query) : await get(url, { ...from, limit: SHOWN }, ctx);
    if (mine !== looks) return; // another request has been made meanwhile
    page = { ...found, query, begins: !positions };
    if (page.positions) known.replaceChildren(...page.positions.split(",").filter((each) => !each.endsWith("~")).map((each) => h("option", { value: each.slice(0, each.lastIndexOf("@")) })));
    [table.nothing.firstChild.textContent, table.nothing.lastChild.textContent] = ["No messages found.", adviceFor(page, by.value, query.contains)];
    table.update(newestFirst() ? page.messages.toReversed() : page.messages);
    showCommand(query);
    const goesOn = page.positions && !page.complete;
    pager.show({
      first: positions ? shownQuery() : null,
      next: goesOn ? { ...shownQuery(), positions: page.positions } : null,
      nextLabel: page.messages.length ? "Next page" : "Search on",
    });
    note.textContent = noteOf(page);
  }

  function newestFirst() {
    return by.value === "newest" && !ctx.query.get("positions");
  }

  function showCommand({ start, offset, time_ms, ...query }) {
    const verb = followed.on ? "tail" : "ls";
    const where = followed.on ? [] : [["--from-offset", offset], ["--from-time", time_ms === undefined ? "" : new Date(time_ms).toISOString()], ["--key", query.key], ["--id", query.id]];
    if (start === "oldest" && !followed.on) where.push(["--from-time", "1970-01-01T00:00:00Z"]);
    command.show(["messages", verb, ctx.topic, ["--queue", query.queue], ...where, ["--grep", query.contains]]);
  }

  function fitForm() {
    const [label, example] = VALUES[by.value] ?? [];
    valueField.hidden = !label;
    if (label) [valueField.firstChild.textContent, value.placeholder] = [label(), example];
    queue.disabled = contains.disabled = byIndex();
    follow.disabled = byIndex();
  }

  function submit(event) {
    event.preventDefault();
    ctx.query.delete("positions");
    followed.stop();
    showFollow();
    remember();
    table.wait();
    ctx.load(look);
  }

  function turn(on) {
    looks += 1; // what is being read is not shown any more
    followed.stop();
    if (on) {
      const query = { queue: queue.value.trim(), contains: contains.value.trim() };
      const same = page?.query.queue === query.queue && page.query.contains === query.contains;
      followed = new Followed(ctx, url);
      followed.start(query, same && newestFirst() && page.complete ? page : null);
    }
    showFollow();
    remember();
    if (on) tail();
  }

  function showFollow() {
    follow.setAttribute("aria-pressed", String(followed.on));
    follow.textContent = followed.on ? "Stop following" : "Follow new messages";
  }

  /** Read what is new, while followed. */
  async function tail() {
    const mine = followed;
    if (!mine.on) return;
    await ctx.load(async () => {
      await mine.look();
      if (!mine.on) return;
      [table.nothing.firstChild.textContent, table.nothing.lastChild.textContent] = ["No new message yet.", "New messages appear here."];
      table.update(mine.rows);
      pager.show({ first: null, next: null });
      showCommand(mine.query);
      note.textContent = mine.sentence();
    });
  }

  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: submit },
    labelled("Show", by),
    labelled("Queue (empty: all)", queue),
    known,
    valueField,
    labelled("Body or property contains", contains),
    h("button", { type: "submit", class: "main" }, "Show"),
    follow,
  );
  by.addEventListener("change", fitForm);
  fitForm();
  const acts = h(
    "div",
    { class: "tools" },
    button("Send a message…", () => askMessage(ctx.topic, (place) => ctx.load(() => one.show(place)))),
    button("Export…", () => ctx.load(async () => exportOf(ctx, url, wanted()))),
  );
  ctx.every(3000, tail);
  ctx.refreshed(async () => followed.on || look());
  if (asked("follow") && !byIndex()) turn(true);
  else ctx.load(look);
  if (asked("view")) ctx.load(() => one.show(asked("view")));
  return [form, acts, one.element, table.element, pager.element, note, command.element];
}

/** Return one page with the newest messages: those behind the first page of a search are read as well. */
async function newest(ctx, url, query) {
  let page = await get(url, { ...query, limit: SHOWN }, ctx);
  const { older } = page;
  let [messages, read] = [page.messages, page.read];
  for (let more = 1; more < NEWEST_PAGES && !page.complete; more += 1) {
    page = await get(url, { positions: page.positions, queue: query.queue, contains: query.contains, limit: SHOWN }, ctx);
    messages = [...messages, ...page.messages].slice(-SHOWN);
    read += page.read;
  }
  return { ...page, messages, read, older };
}

function noteOf(page) {
  const parts = [`${of(page.messages.length, "message")} ${page.positions ? `of ${count(page.read)} read` : "from the brokers' index"}.`];
  if (!page.positions && !page.complete) parts.push("There may be older ones: find them by time, and the key as text.");
  if (page.positions && page.complete && !silentOf(page).length) parts.push("This is the end of the topic at the time of the request.");
  if (page.older && page.begins && page.query.start === "newest") parts.push(page.query.contains ? "Older messages were not searched: choose a time or an offset." : "There are older messages: choose a time or an offset.");
  return [...parts, ...silentOf(page)].join(" ");
}

function adviceFor(page, way, contains) {
  if (silentOf(page).length && page.complete) return "Messages at brokers that did not answer are not known.";
  if (way === "key" || way === "id") return "It may have been deleted by retention, or sent without this key.";
  if (!page.complete) return "The search has not reached the end: search on.";
  return contains ? "Check the text, or choose a time or an offset." : "Nothing is stored from there on.";
}

function offsetOf(text) {
  if (!/^\d{1,18}$/.test(text)) throw new ApiError(400, `invalid offset "${text}": give a number such as 812`);
  return text;
}

function needed(text, what) {
  if (!text) throw new ApiError(400, `nothing to search for: give a ${what}`);
  return text;
}

function exportOf(ctx, url, { key, id, start, offset, ...query }) {
  if (key || id) throw new ApiError(400, "an export reads queues: choose newest, oldest, an offset or a time");
  const time = query.time_ms === undefined ? "" : new Date(query.time_ms).toISOString();
  askExport({
    title: `Export messages of ${ctx.topic}`,
    thing: "message",
    about: `One JSON object a line, with properties and body: ${time || offset ? "the messages from there on" : "all messages that are stored"}, oldest first.`,
    urls: [`${url}/export`],
    query: { ...query, offset },
    file: `${ctx.topic}.ndjson`,
    words: ["messages", "export", ctx.topic, ["--queue", query.queue], ["--from-offset", offset], ["--from-time", time], ["--grep", query.contains]],
  });
}
