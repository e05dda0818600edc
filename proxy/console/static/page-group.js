// One group: each queue, the last hour, and what can be done to all of it.

import { get, path, post } from "./api.js";
import { Chart } from "./chart.js";
import { confirm } from "./dialog.js";
import { badge, button, facts, h } from "./dom.js";
import { age, count, of } from "./format.js";
import { delay, ownQueues, parkedOf, stateOf, sum } from "./groups.js";
import { askReset } from "./resets.js";
import { Table } from "./table.js";

export const title = "Overview";

export function open(ctx) {
  let offsets = null;
  let owners = null;
  const about = h("div");
  const acts = h("div", { class: "tools" });
  const note = h("p", { class: "muted" });
  const charts = [
    new Chart("Backlog, in messages", [["lag", "lag"], ["unfinished", "unfinished"], ["blocked", "behind a key"]]),
    new Chart("At work, in messages", [["leased", "in flight"], ["ready", "ready"]]),
    new Chart("Messages a second", [["acked", "acked"], ["delivered", "handed out"], ["failed", "failed"]], { digits: true }),
  ];
  const table = new Table({
    caption: "Queues",
    key: (row) => `${row.topic} ${row.queue}`,
    nothing: "The topics of this group have no queues yet.",
    advice: "A broker gives a topic its queues with the first message, where it may, or by mqadmin updateTopic.",
    sort: { name: "queue", down: false },
    columns: columns((row) => askReset(ctx.group, row, () => ctx.again())),
  });

  function update() {
    const overview = ctx.live.overview;
    const group = overview?.groups[ctx.group];
    if (overview && !group) {
      about.replaceChildren(h("p", { class: "empty" }, `This proxy has no group ${ctx.group}. `, h("a", { href: "#/groups" }, "All groups")));
      return;
    }
    if (!group) return;
    about.replaceChildren(aboutOf(group, overview.at_ms));
    if (acts.dataset.paused !== String(Boolean(group.paused))) {
      acts.dataset.paused = Boolean(group.paused); // else the button stays, and the focus on it
      acts.replaceChildren(actsOf(ctx, group));
    }
    const rows = rowsOf(group, offsets, owners, overview.at_ms);
    table.update(rows);
    const away = rows.filter((row) => row.unfinished === null).length;
    note.textContent = away ? `${of(away, "queue is", "queues are")} not owned by this proxy: unfinished, span and keys are known to their owners alone.` : "This proxy owns all queues.";
  }

  ctx.overviews(update);
  ctx.every(5000, async () => {
    [offsets, owners] = await Promise.all([get(path("groups", ctx.group, "offsets"), {}, ctx), get(path("owners"), { group: ctx.group }, ctx)]);
    update();
  });
  ctx.every(10_000, async () => {
    const series = await get(path("groups", ctx.group, "series"), {}, ctx);
    for (const chart of charts) chart.update(series);
  });
  return [about, acts, h("h2", {}, "The last hour, of the queues here"), h("div", { class: "charts" }, charts.map((each) => each.element)), h("h2", {}, "Queues"), table.element, note];
}

function aboutOf(group, nowMs) {
  const queues = ownQueues(group);
  const total = (name) => sum(queues, (queue) => queue[name]);
  return facts([
    ["State", badge(stateOf(group))],
    ["Lag", count(sum(queues, (queue) => Math.max(0, queue.end - queue.committed)))],
    ["Delay", age(delay(queues, nowMs))],
    ["Unfinished", count(total("unfinished"))],
    ["Behind a key", count(total("blocked"))],
    ["Parked", count(parkedOf(group))],
    ["In flight", count(sum(group.queues, (queue) => queue.leased))],
    ["Waiting pulls", count(group.waiting_pulls)],
    ["Order key", group.topics.map((topic) => `${topic.name}: ${topic.order_key ?? "none, unordered"}`).join(", ")],
    ["Limit", group.max_rate === null ? "none" : `${count(group.max_rate)} messages/s`],
    group.paused ? ["Paused", `by ${group.paused.by}: ${group.paused.reason}`] : ["Paused", undefined],
    group.deliveries.length ? ["Delivered by the proxy", group.deliveries.map((each) => each.topic ?? "").join(", ")] : ["", undefined],
  ]);
}

function actsOf(ctx, group) {
  const paused = Boolean(group.paused);
  const verb = paused ? "resume" : "pause";
  return button(paused ? "Resume the group…" : "Pause the group…", () =>
    confirm({
      title: `${paused ? "Resume" : "Pause"} group ${ctx.group}`,
      verbs: [
        {
          name: verb,
          label: paused ? "Resume" : "Pause",
          danger: !paused,
          sentence: paused ? "Its messages are handed out again." : "Nothing more of it is handed out until it is resumed. What clients hold they may finish.",
          lines: () => [["Group", paused ? "paused" : "handed out", paused ? "handed out" : "paused"]],
          act: async (asked) => told(verb, await post(path("groups", ctx.group, verb), asked)),
        },
      ],
    }),
  );
}

function told(verb, done) {
  const parts = [`${verb === "pause" ? "Paused" : "Resumed"} in ${of(done.queues.length, "queue")} here`];
  if (done.owners.length) parts.push(`ask these proxies too: ${done.owners.join(", ")}`);
  if (done.unowned.length) parts.push(`nobody owns ${done.unowned.join(", ")}: not done there`);
  if (done.unaddressed.length) parts.push(`not done in ${done.unaddressed.join(", ")}, whose owners left no address`);
  return parts.join("; ");
}

function rowsOf(group, offsets, owners, nowMs) {
  const here = new Map(group.queues.map((queue) => [`${queue.topic} ${queue.queue}`, queue]));
  const epochs = new Map((owners?.queues ?? []).map((row) => [`${row.topic} ${row.queue}`, row.epoch]));
  const all = offsets?.queues ?? ownQueues(group).map((queue) => ({ ...queue, state: "owned", owner: "this proxy", lag: Math.max(0, queue.end - queue.committed) }));
  return all.map((row) => {
    const own = here.get(`${row.topic} ${row.queue}`);
    const last = own ? { end: own.end, committed: own.committed, lag: Math.max(0, own.end - own.committed) } : row;
    return {
      topic: row.topic,
      queue: row.queue,
      base: own?.base ?? row.base,
      begin: row.begin ?? 0,
      ...{ end: last.end, committed: last.committed, lag: last.lag },
      state: own ? (own.draining ? "handed over" : own.paused_whole ? "paused" : "owned") : row.state,
      owner: own ? "this proxy" : (row.owner ?? "nobody"),
      http: own ? null : row.http,
      epoch: own?.epoch ?? epochs.get(`${row.topic} ${row.queue}`) ?? null,
      unfinished: own?.unfinished ?? null,
      blocked: own?.blocked ?? null,
      keys: own?.keys ?? null,
      span: own ? own.position - own.committed : null,
      delay: own ? delay([own], nowMs) : null,
    };
  });
}

function columns(reset) {
  const figure = (name, label, more) => ({ name, label, number: true, cell: (row) => count(row[name]), order: (row) => row[name], ...more });
  const kinds = { owned: "ok", paused: "warn", free: "warn", gone: "bad", "handed over": "busy" };
  return [
    { name: "queue", label: "Queue", cell: (row) => row.queue, order: (row) => row.queue },
    { name: "topic", label: "Topic", cell: (row) => row.topic, order: (row) => row.topic },
    { name: "state", label: "State", cell: (row) => ({ word: row.state, kind: kinds[row.state] ?? "idle" }), order: (row) => row.state },
    figure("end", "End"),
    figure("committed", "Commit"),
    figure("lag", "Lag"),
    { name: "delay", label: "Delay", number: true, cell: (row) => age(row.delay), order: (row) => row.delay },
    figure("unfinished", "Unfinished"),
    figure("blocked", "Behind a key"),
    figure("span", "Span", { title: "What was read, from the committed offset on" }),
    figure("keys", "Keys"),
    { name: "owner", label: "Owner", cell: (row) => (row.http ? { href: `//${row.http}/${location.hash}`, text: row.owner } : row.owner), order: (row) => row.owner },
    figure("epoch", "Epoch"),
    { name: "acts", label: "Actions", unseen: true, make: (current) => button("Reset…", () => reset(current()), { class: "small" }) },
  ];
}
