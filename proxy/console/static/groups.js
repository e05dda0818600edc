// What the pages of groups share: how figures become words.

export function sum(rows, of) {
  return rows.reduce((total, row) => total + of(row), 0);
}

/** The queues of *group* that a producer writes to; those of parked messages are twins of them. */
export function ownQueues(group) {
  return group.queues.filter((queue) => !queue.topic.startsWith("%PARK%"));
}

/** How many messages of *group* are parked. */
export function parkedOf(group) {
  return sum(group.queues.filter((queue) => queue.topic.startsWith("%PARK%")), (queue) => queue.unfinished);
}

/** The state of a group at this proxy: {word, kind, title}. */
export function stateOf(group) {
  const queues = ownQueues(group);
  if (group.paused) return { word: "paused", kind: "warn", title: `by ${group.paused.by}: ${group.paused.reason}` };
  const refused = Object.entries(group.refused);
  if (refused.length) return { word: "refused queues", kind: "bad", title: refused.map(([queue, why]) => `${queue}: ${why}`).join("; ") };
  const trouble = queues.find((queue) => queue.trouble);
  if (trouble) return { word: "trouble", kind: "bad", title: trouble.trouble };
  if (!queues.length) return { word: group.taking_part ? "owns nothing" : "nobody pulls", kind: "idle", title: "no queue is owned here" };
  const total = (name) => sum(queues, (queue) => queue[name]);
  if (total("blocked") && !total("ready") && !total("leased")) return { word: "stands", kind: "bad", title: "all that is unfinished waits behind keys that fail, are parked or paused" };
  if (group.topics.some((topic) => topic.rate_limited)) return { word: "rate-limited", kind: "warn", title: "ready messages wait for max_rate" };
  if (total("retrying")) return { word: "retries", kind: "warn", title: "failed messages wait for their retry" };
  if (total("ready") && !total("leased") && !group.waiting_pulls) return { word: "nobody pulls", kind: "warn", title: "messages are ready, and no pull waits" };
  if (total("unfinished")) return { word: "moves", kind: "busy", title: "messages are being handled" };
  return { word: "caught up", kind: "ok", title: "nothing is unfinished" };
}

/** Age of the oldest unfinished message of *queues* in ms; null if none is, or is not in memory. */
export function delay(queues, nowMs) {
  const stored = queues.map((queue) => queue.oldest_ms).filter((ms) => typeof ms === "number");
  return stored.length ? Math.max(0, nowMs - Math.min(...stored)) : null;
}

/** The state of a key: {word, kind}. */
export function keyState(row) {
  const kinds = { ready: "busy", leased: "busy", retrying: "warn", reading: "busy", "dead-lettering": "warn", paused: "warn", parked: "bad", redriven: "busy", none: "idle" };
  const title = row.by ? `by ${row.by}: ${row.reason}` : row.overdue ? "leased for longer than one lease" : undefined;
  return { word: row.overdue ? `${row.state}, overdue` : row.state, kind: row.overdue ? "bad" : (kinds[row.state] ?? "idle"), title };
}

/** The place of a key's first message, as the page of messages takes it. */
export function headOf(row) {
  if (row.offset === null) return null;
  return `${row.queue}${row.copies > 0 && ["parked", "redriven"].includes(row.state) ? "p" : ""}@${row.offset}`;
}

/** Address of the message at *place*. */
export function messageLink(group, topic, place) {
  return `#/groups/${encodeURIComponent(group)}/messages?${new URLSearchParams({ topic, by: "place", text: place })}`;
}

/** Address of a key's page. */
export function keyLink(group, topic, key) {
  return `#/groups/${encodeURIComponent(group)}/keys?${new URLSearchParams({ topic, key })}`;
}
