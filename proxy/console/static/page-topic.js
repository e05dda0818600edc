// One topic: its retention, brokers, queues and consumer groups.

import { get, path } from "./api.js";
import { commandLine } from "./copying.js";
import { button, facts, h } from "./dom.js";
import { age, count, figure, known, of, rate, silentOf } from "./format.js";
import { sum } from "./groups.js";
import { Table } from "./table.js";
import { askDeletion, askMessage, askUpdate, topicLink } from "./topic-acts.js";

export const title = "Overview";

const HOUR_MS = 3_600_000;

export function open(ctx) {
  const about = h("div", {}, h("p", { class: "loading" }, "Loading…"));
  const note = h("p", { class: "muted" });
  const groups = new Table({
    caption: "Consumer groups",
    key: (row) => row.group,
    nothing: "No group has consumed this topic.",
    advice: "A group appears once it has committed an offset.",
    columns: [
      { name: "group", label: "Group", wide: true, cell: (row) => groupOf(ctx, row.group), order: (row) => row.group },
      { name: "lag", label: "Lag", number: true, title: "Messages not yet committed", cell: (row) => figure(row.lag), order: (row) => row.lag },
    ],
  });
  const brokers = new Table({
    caption: "Brokers",
    key: (row) => row.broker,
    nothing: "No broker has this topic.",
    columns: [
      { name: "broker", label: "Broker", cell: (row) => ({ href: "#/brokers", text: row.broker }), order: (row) => row.broker },
      { name: "read", label: "Readable queues", number: true, cell: (row) => count(row.read_queues) },
      { name: "write", label: "Writable queues", number: true, cell: (row) => count(row.write_queues) },
      { name: "perm", label: "Clients may", cell: (row) => ({ RW: "read and write", R: "read", W: "write", "-": "neither read nor write" })[row.perm] ?? row.perm },
      { name: "rate", label: "Incoming messages/s", number: true, title: "In the last minute", cell: (row) => known(row.put_rate, rate), order: (row) => row.put_rate },
      { name: "retention", label: "Retention", number: true, title: "Older messages are deleted", cell: (row) => retention(row.retention_hours) },
    ],
  });
  const queues = new Table({
    caption: "Queues",
    key: (row) => row.queue,
    nothing: "The topic has no readable queues.",
    advice: "Its permissions allow writing only.",
    sort: { name: "queue", down: false },
    columns: [
      { name: "queue", label: "Queue", cell: (row) => row.queue, copies: (row) => [row.queue, `queue ${row.queue}`], order: (row) => row.queue },
      { name: "begin", label: "Oldest offset", number: true, cell: (row) => figure(row.begin), order: (row) => row.begin },
      { name: "end", label: "End offset", number: true, cell: (row) => figure(row.end), copies: (row) => (row.end === null ? null : [String(row.end), `end offset of ${row.queue}`]), order: (row) => row.end },
      { name: "messages", label: "Stored messages", number: true, cell: (row) => figure(stored(row)), order: stored },
      { name: "browse", label: "Messages", cell: (row) => ({ href: topicLink(ctx.topic, "messages", { queue: row.queue }), text: "Browse" }) },
    ],
  });

  ctx.every(10_000, async () => {
    const found = await get(path("topics", ctx.topic), {}, ctx);
    about.replaceChildren(aboutOf(found));
    groups.update(found.groups);
    brokers.update(found.broker_list);
    queues.update(found.queue_list);
    const silent = silentOf(found);
    const left = found.complete || silent.length ? [] : [`${of(found.queue_list.length, "queue")} and ${of(found.groups.length, "group")} are shown; there are more, or a broker does not list its groups.`];
    note.textContent = [...silent, ...left].join(" ");
  });
  const acts = h(
    "div",
    { class: "tools" },
    h("a", { class: "button", href: topicLink(ctx.topic, "messages") }, "Browse messages"),
    button("Send a message…", () => askMessage(ctx.topic, () => ctx.again())),
    button("Change the topic…", () => askUpdate(ctx.topic, () => ctx.again())),
    button("Delete the topic…", () => askDeletion(ctx.topic)),
  );
  return [
    about,
    acts,
    commandLine(["topics", "describe", ctx.topic]),
    h("h2", {}, "Consumer groups"),
    groups.element,
    h("h2", {}, "Brokers and retention"),
    brokers.element,
    h("h2", {}, "Queues"),
    queues.element,
    note,
  ];
}

function aboutOf(topic) {
  const rates = topic.broker_list.map((row) => row.put_rate);
  const hours = [...new Set(topic.broker_list.map((row) => row.retention_hours))];
  return facts([
    ["Stored messages", figure(topic.messages)],
    ["Queues", count(topic.queues)],
    ["Brokers", topic.brokers.join(", ") || "none"],
    ["Incoming messages/s", rates.includes(null) || !rates.length ? "unknown" : rate(sum(rates, (each) => each))],
    ["Retention", hours.map(retention).join(", ")],
  ]);
}

function retention(hours) {
  if (hours === null) return "unknown";
  return hours >= 48 && hours % 24 === 0 ? of(hours / 24, "day") : age(hours * HOUR_MS);
}

function stored(row) {
  return row.begin === null || row.end === null ? null : row.end - row.begin;
}

/** Return a cell for *name*: a link if this proxy has the group. */
function groupOf(ctx, name) {
  if (!ctx.live.overview?.groups[name]) return name;
  return { href: `#/groups/${encodeURIComponent(name)}`, text: name };
}
