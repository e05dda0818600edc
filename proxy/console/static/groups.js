// Helpers for pages about groups: totals, states and links.

import { elsewhere } from "./dialog.js";
import { age, of, UNKNOWN } from "./format.js";

export function sum(rows, of) {
  return rows.reduce((total, row) => total + of(row), 0);
}

/** Return the queues of *group* that producers write to, without the twins for parked messages. */
export function ownQueues(group) {
  return group.queues.filter((queue) => !queue.topic.startsWith("%PARK%"));
}

/** Return the state of a group as the proxy names it: {word, kind, title}. */
export function stateOf(group) {
  const { word, kind, sentence } = group.state;
  return { word, kind, title: sentence };
}

/** Return the age of the oldest message of *group* that waits, in ms; null without one. */
export function delayOf(group, nowMs) {
  const { oldest_ms } = group.figures;
  return oldest_ms === null ? null : Math.max(0, nowMs - oldest_ms);
}

/** Format that age; none only if it is known that none waits. */
export function delayText(group, nowMs) {
  const delay = delayOf(group, nowMs);
  return delay === null && group.figures.lag === null ? UNKNOWN : age(delay);
}

/** Return which queues the figures of *group* cover, and how old they are; "" if it owns all. */
export function coverage(group, nowMs) {
  const { unowned, elsewhere, at_ms } = group.figures;
  const parts = [];
  if (unowned) parts.push(`${of(unowned, "queue has", "queues have")} no owner: their figures are from their last records and brokers, ${at_ms === null ? "which have not answered yet" : `${age(nowMs - at_ms)} old at most`}.`);
  const troubles = [...new Set(group.others.map((queue) => queue.trouble).filter(Boolean))];
  if (troubles.length) parts.push(`They are not newer because of brokers that do not answer: ${troubles.join("; ")}.`);
  const unsure = ownQueues(group).filter((queue) => !queue.sure);
  if (unsure.length) parts.push(`${of(unsure.length, "queue is", "queues are")} not confirmed by the broker: the figures are the last known ones.`);
  if (elsewhere) parts.push(`${of(elsewhere, "queue of another proxy is", "queues of other proxies are")} not included.`);
  return parts.join(" ");
}

/**
 * Return what a list of keys of *topics* leaves out: those in queues of other proxies, with links to
 * their consoles.
 */
export function leftOut(ctx, topics) {
  const others = (ctx.live.overview?.groups[ctx.group]?.others ?? []).filter((queue) => queue.owned === "elsewhere" && topics.includes(queue.topic));
  if (!others.length) return [];
  const addresses = [...new Set(others.map((queue) => queue.http).filter(Boolean))];
  return [` ${of(others.length, "queue of another proxy is", "queues of other proxies are")} not included.`, ...elsewhere(addresses)];
}

/**
 * Return what a verb left out, by its *answers*: queues of other owners and those without one. A verb is
 * confirmed together with these.
 */
export function notDone(answers) {
  const [owners, unowned, unaddressed] = ["owners", "unowned", "unaddressed"].map((name) => [...new Set(answers.flatMap((each) => each[name]))].join(", "));
  return [
    owners && `not at other owners, repeat it at ${owners}`,
    unowned && `not in ${unowned}, no owner: repeat it in a moment`,
    unaddressed && `not in ${unaddressed}, whose owners publish no address`,
  ].filter(Boolean);
}

/** Return which keys a list lacks because the brokers *silent* did not answer; "" if there are none. */
export function keysLacking(silent) {
  return silent ? ` ${silent} did not answer: what only the last records there list is missing.` : "";
}

/** Return the age of the oldest unfinished message of *queues* in ms; null if none is in memory. */
export function delay(queues, nowMs) {
  const stored = queues.map((queue) => queue.oldest_ms).filter((ms) => typeof ms === "number");
  return stored.length ? Math.max(0, nowMs - Math.min(...stored)) : null;
}

/** Return the state of a key: {word, kind, title}. */
export function keyState(row) {
  const kinds = { ready: "busy", leased: "busy", retrying: "warn", reading: "busy", "dead-lettering": "warn", paused: "warn", parked: "bad", redriven: "busy", none: "idle" };
  const title = row.by ? `by ${row.by}: ${row.reason}` : row.overdue ? "leased for longer than the visibility timeout" : undefined;
  return { word: row.overdue ? `${row.state}, overdue` : row.state, kind: row.overdue ? "bad" : (kinds[row.state] ?? "idle"), title };
}

/** Return the location of a key's first message, in the form that the Messages page accepts. */
export function headOf(row) {
  if (row.offset === null) return null;
  return `${row.queue}${row.copies > 0 && ["parked", "redriven"].includes(row.state) ? "p" : ""}@${row.offset}`;
}

/** Return the address of the message at *place*. */
export function messageLink(group, topic, place) {
  return `#/groups/${encodeURIComponent(group)}/messages?${new URLSearchParams({ topic, by: "place", text: place })}`;
}

/** Return the address of a key's page. */
export function keyLink(group, topic, key) {
  return `#/groups/${encodeURIComponent(group)}/keys?${new URLSearchParams({ topic, key })}`;
}
