// All groups of this proxy: state, lag and owners.

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { elsewhere } from "./dialog.js";
import { age, count, of, rate } from "./format.js";
import { delay, ownQueues, parkedOf, sum, stateOf } from "./groups.js";
import { Table } from "./table.js";

export const title = "Groups";

export function open(ctx) {
  let owners = null;
  let diagnoses = [];
  const filter = h("input", { type: "search", "aria-label": "Filter groups by name", placeholder: "Filter by name", "data-search": "" });
  const note = h("p", { class: "muted" });
  const table = new Table({
    caption: "Groups",
    key: (row) => row.name,
    nothing: "This proxy has no groups.",
    advice: "Add one to its settings file, or run orderlane groups create.",
    sort: { name: "name", down: false },
    columns: [
      { name: "name", label: "Group", cell: (row) => ({ href: `#/groups/${encodeURIComponent(row.name)}`, text: row.name }), order: (row) => row.name },
      { name: "state", label: "State", cell: (row) => row.state, order: (row) => row.state.word },
      { name: "lag", label: "Lag", number: true, title: "Messages not yet committed, in this proxy's queues", cell: (row) => count(row.lag), order: (row) => row.lag },
      { name: "delay", label: "Delay", number: true, title: "Age of the oldest unfinished message in this proxy's queues", cell: (row) => age(row.delay), order: (row) => row.delay },
      { name: "unfinished", label: "Unfinished", number: true, cell: (row) => count(row.unfinished), order: (row) => row.unfinished },
      { name: "blocked", label: "Blocked", number: true, title: "Messages waiting behind another message of their key", cell: (row) => count(row.blocked), order: (row) => row.blocked },
      { name: "parked", label: "Parked", number: true, title: "Messages of parked keys", cell: (row) => count(row.parked), order: (row) => row.parked },
      { name: "leased", label: "In flight", number: true, cell: (row) => count(row.leased), order: (row) => row.leased },
      { name: "acked", label: "Acked/s", number: true, cell: (row) => rate(row.acked), order: (row) => row.acked },
      { name: "pulls", label: "Waiting pulls", number: true, cell: (row) => count(row.waiting), order: (row) => row.waiting },
      { name: "owners", label: "Queues and owners", cell: (row) => row.owners },
      { name: "diagnosis", label: "Diagnosis", wide: true, title: "The first finding of orderlane doctor", cell: (row) => row.diagnosis, order: (row) => row.diagnosis },
    ],
  });

  function update() {
    const { overview, before } = ctx.live;
    if (!overview) return;
    const wanted = filter.value.trim().toLowerCase();
    const names = Object.keys(overview.groups).filter((name) => name.toLowerCase().includes(wanted));
    const sentences = new Map(diagnoses.map((each) => [each.group, each.sentence]));
    table.update(names.map((name) => ({ ...rowOf(name, overview, before, owners), diagnosis: sentences.get(name) ?? "not known yet" })));
    const others = [...new Set((owners?.queues ?? []).map((row) => row.http).filter((http) => http && http !== overview.http))];
    note.replaceChildren(
      `Figures cover the queues owned by this proxy (${overview.proxy}).`,
      overview.drained ? ` It is drained: ${overview.drained}.` : "",
      ...(others.length ? [" Other proxies own the rest:", ...elsewhere(others)] : []),
    );
  }

  filter.addEventListener("input", update);
  ctx.overviews(update);
  ctx.every(10_000, async () => {
    diagnoses = await get(path("diagnoses"), {}, ctx);
    update();
  });
  ctx.every(10_000, async () => {
    owners = await get(path("owners"), {}, ctx);
    update();
  });
  return [h("div", { class: "tools" }, filter), table.element, note];
}

function rowOf(name, overview, before, owners) {
  const group = overview.groups[name];
  const queues = ownQueues(group);
  return {
    name,
    state: stateOf(group),
    lag: sum(queues, (queue) => Math.max(0, queue.end - queue.committed)),
    delay: delay(queues, overview.at_ms),
    unfinished: sum(queues, (queue) => queue.unfinished),
    blocked: sum(queues, (queue) => queue.blocked),
    parked: parkedOf(group),
    leased: sum(group.queues, (queue) => queue.leased),
    acked: perSecond(name, overview, before),
    waiting: group.waiting_pulls,
    owners: ownersOf(name, group, owners),
  };
}

function ownersOf(name, group, owners) {
  if (!owners) return `${of(ownQueues(group).length, "queue")} here`;
  const queues = owners.queues.filter((row) => row.group === name);
  const free = queues.filter((row) => row.state !== "owned").length;
  const proxies = new Set(queues.filter((row) => row.state === "owned").map((row) => row.owner)).size;
  const parts = [`${ownQueues(group).length} of ${queues.length} here`];
  if (proxies > 1) parts.push(of(proxies, "proxy", "proxies"));
  if (free) parts.push(`${free} without an owner`);
  return parts.join(", ");
}

function perSecond(name, overview, before) {
  const earlier = before?.groups[name];
  if (!earlier || overview.at_ms <= before.at_ms) return null;
  const acked = (group) => sum(Object.values(group.counts), (each) => each.acked);
  return Math.max(0, acked(overview.groups[name]) - acked(earlier)) / ((overview.at_ms - before.at_ms) / 1000);
}
