// Helpers for pages about groups: totals, states and links.

export function sum(rows, of) {
  return rows.reduce((total, row) => total + of(row), 0);
}

/** Return the queues of *group* that producers write to, without the twins for parked messages. */
export function ownQueues(group) {
  return group.queues.filter((queue) => !queue.topic.startsWith("%PARK%"));
}

/** Return the number of parked messages of *group*. */
export function parkedOf(group) {
  return sum(group.queues.filter((queue) => queue.topic.startsWith("%PARK%")), (queue) => queue.unfinished);
}

/** Return the state of a group at this proxy: {word, kind, title}. */
export function stateOf(group) {
  const queues = ownQueues(group);
  if (group.paused) return { word: "paused", kind: "warn", title: `by ${group.paused.by}: ${group.paused.reason}` };
  const refused = Object.entries(group.refused);
  if (refused.length) return { word: "queues refused", kind: "bad", title: refused.map(([queue, why]) => `${queue}: ${why}`).join("; ") };
  const trouble = queues.find((queue) => queue.trouble);
  if (trouble) return { word: "error", kind: "bad", title: trouble.trouble };
  if (!queues.length) return { word: group.taking_part ? "no queues" : "no clients", kind: "idle", title: "this proxy owns no queue of the group" };
  const total = (name) => sum(queues, (queue) => queue[name]);
  if (total("blocked") && !total("ready") && !total("leased")) return { word: "blocked", kind: "bad", title: "all unfinished messages wait behind failing, parked or paused keys" };
  if (group.topics.some((topic) => topic.rate_limited)) return { word: "rate-limited", kind: "warn", title: "ready messages wait for max_rate" };
  if (total("retrying")) return { word: "retrying", kind: "warn", title: "failed messages wait for their retry" };
  if (total("ready") && !total("leased") && !group.waiting_pulls) return { word: "no pulls", kind: "warn", title: "messages are ready, but no client is pulling" };
  if (total("unfinished")) return { word: "processing", kind: "busy", title: "messages are being handled" };
  return { word: "caught up", kind: "ok", title: "no message is unfinished" };
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
