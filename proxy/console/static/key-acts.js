// Actions on a key. Each shows the state before and after, and needs a reason. Verbs and texts come
// from the proxy's table of key verbs.

import { path, post } from "./api.js";
import { confirm } from "./dialog.js";
import { age, count, figure, keyName, keyTitle, of } from "./format.js";
import { headOf, notDone } from "./groups.js";
import { VERBS } from "./key-verbs.js";

const READ = { rate };

/** Open the dialog of actions on the key of *row*, an API response. */
export function askKey(group, topic, row, done) {
  const url = (verb) => path("groups", group, "topics", topic, "keys", verb);
  confirm({
    title: keyTitle(row.key),
    about: `group ${group}, topic ${topic}, queue ${row.queue}: ${row.state}, ${of(row.backlog, "message")} unfinished`,
    verbs: possible(row).map((verb) => dialogOf(verb, row, url(verb.name))),
    done,
  });
}

/** Return the verbs that apply to the shown state; the proxy refuses all others. */
export function possible(row) {
  const stage = row.state === "redriven" || row.state === "parked" ? row.state : "queue";
  const fits = (shown) => shown.stage === stage && (shown.paused === null || shown.paused === row.paused) && (!shown.head || row.offset !== null);
  return VERBS.filter((verb) => verb.shown.some(fits));
}

function dialogOf(verb, row, url) {
  const { name, label, sentence, danger } = verb;
  const ask = (asked) => post(url, { key: row.key, ...(verb.queued ? { queue: row.queue } : {}), ...Object.fromEntries(verb.sends.map((field) => [field, row[field]])), ...asked });
  const lines = (seen) => verb.lines.map((line) => line.map((text) => fill(text, before(seen))));
  return {
    ...{ name, label, sentence, danger },
    fields: verb.fields.map((field) => ({ ...field, value: row[field.name] ?? field.value, read: READ[field.read] })),
    ...(verb.preview ? { preview: async (asked) => lines(await ask({ ...asked, dry_run: true })) } : { lines: () => lines(row) }),
    act: async (asked) => fill(verb.done, after(row, await ask(asked))),
  };
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

/** Return the placeholders of a key before the change. */
function before(row) {
  return {
    state: row.state,
    backlog: figure(row.backlog),
    backlog_less_one: figure(row.backlog === null ? null : Math.max(0, row.backlog - 1)),
    copies_count: figure(row.copies),
    head: headOf(row) ?? "none",
    note: row.note || "none",
    due: row.retry_ms === null ? row.state : `in ${age(row.retry_ms)}`,
  };
}

/** Return the placeholders of the final sentence. */
function after(row, did) {
  return {
    key: did.key,
    copies: of(did.copies, "copy", "copies"),
    not_copied: count(did.not_copied),
    messages: of(did.backlog, "message"),
    place: did.offset ?? "its offset",
    shown_offset: row.offset,
    everywhere: did.queues && everywhere(did),
  };
}

function everywhere(did) {
  return [`${keyName(did.key)} in ${of(did.queues.length, "queue")} at this proxy`, ...notDone([did])].join("; ");
}

function rate(text) {
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) throw new Error(`invalid rate "${text}": give messages per second, or 0 for no limit`);
  return value;
}
