// Message search by producer key, id or offset, and details of one message.

import { ApiError, get, path } from "./api.js";
import { bodyView, propertiesView } from "./body.js";
import { copyButton } from "./copying.js";
import { button, choice, facts, h, labelled } from "./dom.js";
import { bytes, moment, of, silentOf } from "./format.js";
import { keyLink } from "./groups.js";
import { Table } from "./table.js";
import { topicChoice, withTopics } from "./topics.js";

export const title = "Messages";

const WAYS = [["key", "message key"], ["id", "message id"], ["place", "queue and offset, e.g. broker-a_0@17"]];

export function open(ctx) {
  return withTopics(ctx, page);
}

function page(ctx, topics) {
  const topic = topicChoice(ctx, topics);
  const by = choice(WAYS, WAYS.some(([way]) => way === ctx.query.get("by")) ? ctx.query.get("by") : "key");
  const text = h("input", { type: "search", value: ctx.query.get("text") ?? "", "data-search": "", autocomplete: "off", maxlength: 500 });
  const whole = h("section", { class: "one", hidden: true, "aria-label": "One message" });
  const note = h("p", { class: "muted" }, "Brokers index the message keys set by producers. For an order key from the body, use the Keys page: it links the first message. ", h("a", { href: "#/topics" }, "Topics"), " lists all messages of a topic.");
  const url = (at, ...more) => path("groups", ctx.group, "topics", at, "messages", ...more);
  let looks = 0;
  const table = new Table({
    caption: "Messages",
    key: (row) => row.message,
    nothing: "No messages found.",
    advice: "The message may have been deleted by retention, or sent without this key.",
    columns: [
      { name: "message", label: "Message", mono: true, cell: (row) => row.message, copies: (row) => [row.message, `location ${row.message}`], order: (row) => row.offset },
      { name: "keys", label: "Keys", mono: true, cell: (row) => row.keys ?? "–", copies: (row) => (row.keys ? [row.keys, `key ${row.keys}`] : null) },
      { name: "order", label: "Order key", mono: true, cell: (row) => (row.order_key === null ? "–" : { href: keyLink(ctx.group, row.at, row.order_key), text: row.order_key }) },
      { name: "tag", label: "Tag", cell: (row) => row.tag ?? "–" },
      { name: "stored", label: "Stored", number: true, cell: (row) => moment(row.store_ms), order: (row) => row.store_ms },
      { name: "size", label: "Size", number: true, cell: (row) => bytes(row.bytes), order: (row) => row.bytes },
      { name: "id", label: "Id", mono: true, wide: true, cell: (row) => row.message_id },
      { name: "acts", label: "Actions", unseen: true, make: (current) => button("View", () => ctx.load(() => view(current().at, current().message)), { class: "small" }) },
    ],
  });
  table.element.hidden = true;

  /** Show the message at *place* of topic *at*. */
  async function view(at, place) {
    const mine = looks;
    const message = await get(url(at, "show"), { message: place }, ctx);
    if (mine !== looks) return;
    whole.hidden = false;
    whole.replaceChildren(...wholeMessage(ctx, at, message));
    whole.scrollIntoView({ block: "nearest" });
  }

  async function look() {
    const [at, wanted] = [topic.value, text.value.trim()];
    const mine = (looks += 1);
    ctx.remember({ topic: at, by: by.value, text: wanted });
    whole.hidden = true;
    table.element.hidden = true;
    if (!wanted) throw new ApiError(400, "nothing to search for: give a key, an id, or a queue and offset");
    if (by.value === "place") {
      await view(at, wanted);
      return;
    }
    const found = await get(url(at), { [by.value]: wanted }, ctx);
    if (mine !== looks) return; // another search has been made meanwhile
    table.element.hidden = false;
    table.update(found.messages.map((row) => ({ ...row, at }))); // another topic may be chosen by then
    const older = found.complete ? [] : ["There may be older ones: find them on the page of the topic, by time."];
    note.textContent = [`${of(found.messages.length, "message")}.`, ...older, ...silentOf(found)].join(" ");
    if (found.messages.length === 1) await view(at, found.messages[0].message);
  }

  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); ctx.load(look); } },
    labelled("Topic", topic),
    labelled("Find by", by),
    labelled("Key, id or queue@offset", text),
    h("button", { type: "submit", class: "main" }, "Find"),
  );
  if (text.value) ctx.load(look);
  return [form, whole, table.element, note];
}

function wholeMessage(ctx, topic, message) {
  return [
    h("h2", {}, "Message ", h("span", { class: "mono" }, message.message), copyButton(message.message, `location ${message.message}`)),
    facts([
      ["Id", h("span", { class: "mono" }, message.message_id, copyButton(message.message_id, "message id"))],
      ["Keys", message.keys === null ? "none" : h("span", { class: "mono" }, message.keys, copyButton(message.keys, `key ${message.keys}`))],
      ["Order key", message.order_key === null ? "none" : h("a", { href: keyLink(ctx.group, topic, message.order_key) }, message.order_key)],
      ["Tag", message.tag ?? "none"],
      ["Created", moment(message.born_ms)],
      ["Stored", moment(message.store_ms)],
      ["Size", bytes(message.bytes)],
    ]),
    bodyView(message),
    propertiesView(message.properties),
  ];
}
