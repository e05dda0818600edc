// One group: its state, charts of the last hour, queues, and actions on the whole group.

import { get, path, post } from "./api.js";
import { Chart } from "./chart.js";
import { confirm } from "./dialog.js";
import { diagnosisOf } from "./diagnosis.js";
import { badge, button, facts, h } from "./dom.js";
import { age, count, figure, of, UNKNOWN } from "./format.js";
import { groupResetButton } from "./group-resets.js";
import { coverage, delay, delayText, notDone, ownQueues, stateOf, sum } from "./groups.js";
import { askReset } from "./resets.js";
import { Table } from "./table.js";

export const title = "Overview";

export function open(ctx) {
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
    const rows = rowsOf(group, overview.at_ms);
    table.update(rows);
    // Without figures further queues may exist: brokers have not answered for a topic.
    const isKnown = group.figures.lag !== null;
    table.nothing.firstChild.textContent = isKnown ? "The group's topics have no queues yet." : "The queues of the group's topics are not known yet.";
    note.textContent = coverage(group, overview.at_ms) || (isKnown ? "This proxy owns all queues." : "Not all queues are known yet: the brokers of a topic have not answered.");
  }

  ctx.overviews(update);
  ctx.every(10_000, async () => {
    const series = await get(path("groups", ctx.group, "series"), {}, ctx);
    for (const chart of charts) chart.update(series);
  });
  return [diagnosisOf(ctx), about, h("div", { class: "tools" }, acts, groupResetButton(ctx)), h("h2", {}, "Last hour, queues of this proxy"), h("div", { class: "charts" }, charts.map((each) => each.element)), h("h2", {}, "Queues"), table.element, note];
}

function aboutOf(group, nowMs) {
  const { lag, unfinished, blocked, parked, parked_keys, paused_keys } = group.figures;
  return facts([
    ["State", badge(stateOf(group))],
    ["Why", group.state.sentence],
    ["Lag", figure(lag)],
    ["Delay", delayText(group, nowMs)],
    ["Unfinished", figure(unfinished)],
    ["Blocked", figure(blocked)],
    ["Parked", parked_keys ? `${figure(parked)}, of ${of(parked_keys, "key")}` : figure(parked)],
    ["Paused keys", paused_keys === 0 ? undefined : figure(paused_keys)],
    ["Dead letters", figure(group.dead_letters)],
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
  return [`${verb === "pause" ? "Paused" : "Resumed"} in ${of(done.queues.length, "queue")} at this proxy`, ...notDone([done])].join("; ");
}

function rowsOf(group, nowMs) {
  return [...ownQueues(group).map((own) => rowOfOwn(group, own, nowMs)), ...group.others.map((other) => rowOfOther(other, nowMs))];
}

function rowOfOwn(group, own, nowMs) {
  return {
    ...own,
    lag: own.read_trouble ? null : Math.max(0, own.end - own.committed),
    state: own.draining ? "hand-over" : own.paused_whole ? "paused" : "owned",
    owner: "this proxy",
    http: null,
    parked: parkedIn(group, own),
    span: own.position - own.committed,
    delay: own.unfinished && own.oldest_ms === null ? undefined : delay([own], nowMs),
  };
}

function rowOfOther(other, nowMs) {
  const oldest = other.oldest_ms === null ? undefined : Math.max(0, nowMs - other.oldest_ms);
  return {
    ...other,
    base: other.committed,
    state: other.owned === "elsewhere" ? "owned" : other.owned,
    owner: other.owner ?? (other.owned === "unknown" ? UNKNOWN : "none"),
    ...{ epoch: null, keys: null, span: null },
    delay: other.lag === 0 ? null : oldest,
  };
}

/** Return the parked messages of an owned queue; null: unknown until the queue of the copies is open. */
function parkedIn(group, own) {
  const twin = group.queues.find((queue) => queue.for_topic === own.topic && queue.name === `${own.queue}p`);
  return twin ? twin.unfinished + Math.max(0, twin.end - twin.position) : own.parked_keys ? null : 0;
}

function columns(reset) {
  const column = (format, name, label, more) => ({ name, label, number: true, cell: (row) => format(row[name]), order: (row) => row[name], ...more });
  const kinds = { owned: "ok", paused: "warn", free: "warn", gone: "bad", "hand-over": "busy" };
  return [
    { name: "queue", label: "Queue", cell: (row) => row.queue, order: (row) => row.queue },
    { name: "topic", label: "Topic", cell: (row) => row.topic, order: (row) => row.topic },
    { name: "state", label: "State", cell: (row) => ({ word: row.state, kind: kinds[row.state] ?? "idle" }), order: (row) => row.state },
    column(figure, "end", "End", { title: "End offset" }),
    { name: "committed", label: "Committed", number: true, title: "Committed offset", cell: (row) => (row.end === null ? UNKNOWN : count(row.committed)), order: (row) => row.committed },
    column(figure, "lag", "Lag"),
    { name: "delay", label: "Delay", number: true, cell: (row) => (row.delay === undefined ? UNKNOWN : age(row.delay)), order: (row) => row.delay },
    column(figure, "unfinished", "Unfinished"),
    column(figure, "blocked", "Blocked", { title: "Messages waiting behind another message of their key" }),
    column(figure, "parked", "Parked", { title: "Messages of parked keys, which are in no other figure" }),
    column(count, "span", "Span", { title: "Read position minus committed offset" }),
    column(count, "keys", "Keys"),
    { name: "owner", label: "Owner", cell: (row) => (row.http ? { href: `//${row.http}/${location.hash}`, text: row.owner } : row.owner), order: (row) => row.owner },
    column(count, "epoch", "Epoch"),
    { name: "acts", label: "Actions", unseen: true, make: (current) => button("Reset…", () => reset(current()), { class: "small" }) },
  ];
}
