// One group: its state, charts of the last hour, queues, and actions on the whole group.

import { get, path, post } from "./api.js";
import { Chart } from "./chart.js";
import { confirm } from "./dialog.js";
import { badge, button, facts, h } from "./dom.js";
import { age, count, of } from "./format.js";
import { groupResetButton } from "./group-resets.js";
import { delay, ownQueues, parkedOf, stateOf, sum } from "./groups.js";
import { askReset } from "./resets.js";
import { Table } from "./table.js";

export const title = "Overview";

export function open(ctx) {
  let offsets = null;
  let owners = null;
  const about = h("div");
  const acts = h("span");
  const note = h("p", { class: "muted" });
  const charts = [
    new Chart("Lag, messages", [["lag", "lag"], ["unfinished", "unfinished"], ["blocked", "blocked"]]),
    new Chart("In progress, messages", [["leased", "in flight"], ["ready", "ready"]]),
    new Chart("Throughput, messages/s", [["acked", "acked"], ["delivered", "delivered"], ["failed", "failed"]], { digits: true }),
  ];
  const table = new Table({
    caption: "Queues",
    key: (row) => `${row.topic} ${row.queue}`,
    nothing: "The group's topics have no queues yet.",
    advice: "Send a first message if the broker creates topics automatically, or run mqadmin updateTopic.",
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
      acts.dataset.paused = Boolean(group.paused); // unchanged: keep the button and its focus
      acts.replaceChildren(actsOf(ctx, group));
    }
    const rows = rowsOf(group, offsets, owners, overview.at_ms);
    table.update(rows);
    const away = rows.filter((row) => row.unfinished === null).length;
    note.textContent = away ? `Other proxies own ${of(away, "queue")}; only the owner knows a queue's delay, unfinished messages, span and keys.` : "This proxy owns all queues.";
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
  return [about, h("div", { class: "tools" }, acts, groupResetButton(ctx)), h("h2", {}, "Last hour, queues of this proxy"), h("div", { class: "charts" }, charts.map((each) => each.element)), h("h2", {}, "Queues"), table.element, note];
}

function aboutOf(group, nowMs) {
  const queues = ownQueues(group);
  const total = (name) => sum(queues, (queue) => queue[name]);
  return facts([
    ["State", badge(stateOf(group))],
    ["Lag", count(sum(queues, (queue) => Math.max(0, queue.end - queue.committed)))],
    ["Delay", age(delay(queues, nowMs))],
    ["Unfinished", count(total("unfinished"))],
    ["Blocked", count(total("blocked"))],
    ["Parked", count(parkedOf(group))],
    ["In flight", count(sum(group.queues, (queue) => queue.leased))],
    ["Waiting pulls", count(group.waiting_pulls)],
    ["Order key", group.topics.map((topic) => `${topic.name}: ${topic.order_key ?? "none, unordered"}`).join(", ")],
    ["Rate limit", group.max_rate === null ? "none" : `${count(group.max_rate)} messages/s`],
    ["Delivery order", group.hand_out === "longest_chain" ? "longest chain first" : "oldest first"],
    group.paused ? ["Paused", `by ${group.paused.by}: ${group.paused.reason}`] : ["Paused", undefined],
    group.deliveries.length ? ["Push deliveries", group.deliveries.map((each) => each.topic ?? "").join(", ")] : ["", undefined],
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
          sentence: paused ? "Messages are delivered again." : "No messages are delivered until the group is resumed. Leased messages may finish.",
          lines: () => [["Group", paused ? "paused" : "delivering", paused ? "delivering" : "paused"]],
          act: async (asked) => told(verb, await post(path("groups", ctx.group, verb), asked)),
        },
      ],
    }),
  );
}

function told(verb, done) {
  const parts = [`${verb === "pause" ? "Paused" : "Resumed"} in ${of(done.queues.length, "queue")} at this proxy`];
  if (done.owners.length) parts.push(`not at other owners, repeat it at ${done.owners.join(", ")}`);
  if (done.unowned.length) parts.push(`not in ${done.unowned.join(", ")}, which have no owner`);
  if (done.unaddressed.length) parts.push(`not in ${done.unaddressed.join(", ")}, whose owners publish no address`);
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
      state: own ? (own.draining ? "hand-over" : own.paused_whole ? "paused" : "owned") : row.state,
      owner: own ? "this proxy" : (row.owner ?? "none"),
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
  const kinds = { owned: "ok", paused: "warn", free: "warn", gone: "bad", "hand-over": "busy" };
  return [
    { name: "queue", label: "Queue", cell: (row) => row.queue, order: (row) => row.queue },
    { name: "topic", label: "Topic", cell: (row) => row.topic, order: (row) => row.topic },
    { name: "state", label: "State", cell: (row) => ({ word: row.state, kind: kinds[row.state] ?? "idle" }), order: (row) => row.state },
    figure("end", "End", { title: "End offset" }),
    figure("committed", "Committed", { title: "Committed offset" }),
    figure("lag", "Lag"),
    { name: "delay", label: "Delay", number: true, cell: (row) => age(row.delay), order: (row) => row.delay },
    figure("unfinished", "Unfinished"),
    figure("blocked", "Blocked", { title: "Messages waiting behind another message of their key" }),
    figure("span", "Span", { title: "Read position minus committed offset" }),
    figure("keys", "Keys"),
    { name: "owner", label: "Owner", cell: (row) => (row.http ? { href: `//${row.http}/${location.hash}`, text: row.owner } : row.owner), order: (row) => row.owner },
    figure("epoch", "Epoch"),
    { name: "acts", label: "Actions", unseen: true, make: (current) => button("Reset…", () => reset(current()), { class: "small" }) },
  ];
}
