// All groups of this proxy: state, lag and owners.

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { elsewhere } from "./dialog.js";
import { count, figure, of, rate } from "./format.js";
import { delayOf, delayText, ownQueues, sum, stateOf } from "./groups.js";
import { Table } from "./table.js";

export const title = "Groups";

export function open(ctx) {
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
      { name: "lag", label: "Lag", number: true, title: "Messages not yet committed", cell: (row) => figure(row.lag), order: (row) => row.lag },
      { name: "delay", label: "Delay", number: true, title: "Age of the oldest message that waits", cell: (row) => row.delayText, order: (row) => row.delay },
      { name: "unfinished", label: "Unfinished", number: true, cell: (row) => figure(row.unfinished), order: (row) => row.unfinished },
      { name: "blocked", label: "Blocked", number: true, title: "Messages waiting behind another message of their key", cell: (row) => figure(row.blocked), order: (row) => row.blocked },
      { name: "parked", label: "Parked", number: true, title: "Messages of parked keys, which are in no other figure", cell: (row) => figure(row.parked), order: (row) => row.parked },
      { name: "dead", label: "Dead letters", number: true, title: "Dead letters that were not redriven", cell: (row) => figure(row.dead), order: (row) => row.dead },
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
    table.update(names.map((name) => ({ ...rowOf(name, overview, before), diagnosis: sentences.get(name) ?? (overview.groups[name].mode === "broadcast" ? "none for broadcast groups" : "not known yet") })));
    const elsewhereOwned = Object.values(overview.groups).flatMap((group) => group.others.filter(isElsewhere));
    const others = [...new Set(elsewhereOwned.map((queue) => queue.http).filter(Boolean))];
    note.replaceChildren(
      `Figures cover the queues of this proxy (${overview.proxy}), and those without an owner, as brokers and their last records show them.`,
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
  return [h("div", { class: "tools" }, filter), table.element, note];
}

function rowOf(name, overview, before) {
  const group = overview.groups[name];
  const { lag, unfinished, blocked, parked } = group.figures;
  return {
    name,
    state: stateOf(group),
    delay: delayOf(group, overview.at_ms),
    delayText: delayText(group, overview.at_ms),
    ...{ lag, unfinished, blocked, parked, dead: group.dead_letters },
    leased: sum(group.queues, (queue) => queue.leased),
    acked: perSecond(name, overview, before),
    waiting: group.waiting_pulls,
    owners: ownersOf(group),
  };
}

function isElsewhere(queue) {
  return queue.owned === "elsewhere";
}

function ownersOf(group) {
  const here = ownQueues(group).length;
  const elsewhereOwned = group.others.filter(isElsewhere);
  const unknown = group.others.filter((queue) => queue.owned === "unknown").length;
  const free = group.others.length - elsewhereOwned.length - unknown;
  const proxies = new Set(elsewhereOwned.map((queue) => queue.owner)).size + (here ? 1 : 0);
  const parts = [`${here} of ${here + group.others.length} here`];
  if (proxies > 1) parts.push(of(proxies, "proxy", "proxies"));
  if (free) parts.push(`${free} without an owner`);
  if (unknown) parts.push(`${unknown} unknown`);
  return parts.join(", ");
}

function perSecond(name, overview, before) {
  const earlier = before?.groups[name];
  if (!earlier || overview.at_ms <= before.at_ms) return null;
  const acked = (group) => sum(Object.values(group.counts), (each) => each.acked);
  return Math.max(0, acked(overview.groups[name]) - acked(earlier)) / ((overview.at_ms - before.at_ms) / 1000);
}
