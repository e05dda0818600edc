// Topics of the brokers, page by page.

import { get, path } from "./api.js";
import { button, h, labelled } from "./dom.js";
import { count, figure, silentOf } from "./format.js";
import { Pager } from "./paging.js";
import { Table } from "./table.js";
import { askNewTopic, topicLink } from "./topic-acts.js";

export const title = "Topics";

const SHOWN = 50;

export function open(ctx) {
  const contains = h("input", { type: "search", value: ctx.query.get("contains") ?? "", "data-search": "", autocomplete: "off", maxlength: 127 });
  const all = h("input", { type: "checkbox", checked: ctx.query.get("all") === "true" });
  const after = () => ctx.query.get("after") ?? "";
  const note = h("p", { class: "muted" });
  const pager = new Pager("topics");
  const table = new Table({
    caption: "Topics",
    key: (row) => row.topic,
    nothing: "The brokers have no topics of applications.",
    advice: "Create one, or send a first message if the brokers create topics automatically.",
    columns: [
      { name: "topic", label: "Topic", wide: true, cell: (row) => ({ href: topicLink(row.topic), text: row.topic }), copies: (row) => [row.topic, `topic ${row.topic}`], order: (row) => row.topic },
      { name: "brokers", label: "Brokers", wide: true, cell: (row) => row.brokers.join(", ") || "–" },
      { name: "queues", label: "Queues", number: true, cell: (row) => count(row.queues), order: (row) => row.queues },
      { name: "messages", label: "Stored messages", number: true, cell: (row) => figure(row.messages), order: (row) => row.messages },
      { name: "browse", label: "Messages", cell: (row) => ({ href: topicLink(row.topic, "messages"), text: "Browse" }) },
    ],
  });

  async function look() {
    const filter = { contains: contains.value.trim(), all: all.checked ? "true" : "" };
    const found = await get(path("topics"), { ...filter, after: after(), limit: SHOWN }, ctx);
    if (filter.contains) table.nothing.firstChild.textContent = `No topic contains “${filter.contains}”.`;
    table.update(found.topics);
    pager.show({ first: after() ? filter : null, next: found.next ? { ...filter, after: found.next } : null });
    note.textContent = [`At most ${SHOWN} topics a page, by name.`, ...silentOf(found)].join(" ");
  }

  function filtered(event) {
    event.preventDefault();
    ctx.query.delete("after");
    ctx.remember({ contains: contains.value.trim(), all: all.checked ? "true" : "" });
    ctx.again();
  }

  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: filtered },
    labelled("Name contains", contains),
    labelled("Include internal topics", all),
    h("button", { type: "submit" }, "Filter"),
    button("Create a topic…", () => askNewTopic()),
  );
  ctx.every(10_000, look);
  return [form, table.element, pager.element, note];
}
