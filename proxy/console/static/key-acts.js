// What can be done to a key: each act says what is now and what will be, and needs a reason.

import { path, post } from "./api.js";
import { confirm } from "./dialog.js";
import { age, count, of } from "./format.js";
import { headOf } from "./groups.js";

/** Ask what to do with the key of *row*, an answer of the API. */
export function askKey(group, topic, row, done) {
  const url = (verb) => path("groups", group, "topics", topic, "keys", verb);
  confirm({
    title: `Key ${row.key}`,
    about: `group ${group}, topic ${topic}, queue ${row.queue}: ${row.state}, ${of(row.backlog, "message")} unfinished`,
    verbs: verbsOf(row, url),
    done,
  });
}

function verbsOf(row, url) {
  const at = { key: row.key, queue: row.queue };
  const all = { pause: pause(row, url), resume: resume(row, url), park: park(row, url, at), retry: retry(row, url, at), skip: skip(row, url, at), redrive: redrive(row, url, at), stop: stop(row, url, at) };
  return possible(row).map((name) => ({ name, ...all[name] }));
}

/** The verbs that make sense for what is shown; the proxy refuses the others anyway. */
export function possible(row) {
  if (row.state === "redriven") return ["stop"];
  if (row.state === "parked") return row.offset === null ? ["redrive"] : ["redrive", "skip"];
  const verbs = [row.paused ? "resume" : "pause"];
  if (row.offset !== null) verbs.push("park", "retry", "skip");
  return verbs;
}

function pause(row, url) {
  return {
    label: "Pause",
    sentence: "Nothing of the key is handed out, in any queue, until it is resumed. What a client holds it may finish.",
    lines: () => [["Key", row.state, "paused"]],
    act: async (asked) => everywhere("Paused", await post(url("pause"), { key: row.key, ...asked })),
  };
}

function resume(row, url) {
  return {
    label: "Resume",
    sentence: "The key is handed out again, in its order.",
    lines: () => [["Key", "paused", "handed out"]],
    act: async (asked) => everywhere("Resumed", await post(url("resume"), { key: row.key, ...asked })),
  };
}

function everywhere(word, did) {
  const parts = [`${word} ${did.key} in ${of(did.queues.length, "queue")} of this proxy`];
  if (did.owners.length) parts.push(`ask these proxies too: ${did.owners.join(", ")}`);
  if (did.unowned.length) parts.push(`nobody owns ${did.unowned.join(", ")}: not done there`);
  if (did.unaddressed.length) parts.push(`not done in ${did.unaddressed.join(", ")}, whose owners left no address`);
  return parts.join("; ");
}

function park(row, url, at) {
  return {
    label: "Park",
    danger: true,
    sentence: "All messages of the key go to the parked topic, in order, and wait there until the key is redriven. Other keys go on.",
    lines: () => [["Key", row.state, "parked"], ["Unfinished in the queue", count(row.backlog), "0, all in the parked topic"]],
    act: async (asked) => {
      const did = await post(url("park"), { key: at.key, ...asked });
      return `Parked ${did.key}: ${of(did.copies, "copy", "copies")}, ${count(did.not_copied)} to come`;
    },
  };
}

function retry(row, url, at) {
  return {
    label: "Retry now",
    sentence: "The first message is handed out at once, before its retry time.",
    fields: [{ name: "anew", label: "Count hand-outs from 0 again", type: "checkbox", checked: false }],
    lines: () => [["First message", row.retry_ms === null ? row.state : `again in ${age(row.retry_ms)}`, "handed out at once"]],
    act: async (asked) => {
      const did = await post(url("retry"), { ...at, ...asked });
      return `${did.key}: its first message, at ${did.offset ?? "its place"}, is offered`;
    },
  };
}

function skip(row, url, at) {
  return {
    label: "Skip the first message",
    danger: true,
    sentence: "The first message is given up for this group: no client gets it any more. The key goes on with the next one.",
    lines: () => [["First message", headOf(row) ?? "none", "the one behind it"], ["Unfinished", count(row.backlog), count(Math.max(0, row.backlog - 1))]],
    act: async (asked) => {
      const did = await post(url("skip"), { ...at, offset: row.offset, ...asked });
      return `Skipped ${row.offset} of ${did.key}: ${of(did.backlog, "message")} left`;
    },
  };
}

function redrive(row, url, at) {
  const sent = ({ rate, ...asked }) => ({ ...at, ...asked, rate });
  return {
    label: "Redrive",
    sentence: "What is parked of the key is handed out again, in its order; then the key goes on in its queue.",
    fields: [{ name: "rate", label: "Messages a second", value: "0", inputmode: "decimal", hint: "0: as fast as clients take them", read: number }],
    preview: async (asked) => {
      const seen = await post(url("redrive"), sent({ ...asked, dry_run: true }));
      return [["Key", seen.state, "redriven"], ["Copies to hand out", count(seen.copies), 0]];
    },
    act: async (asked) => {
      const did = await post(url("redrive"), sent(asked));
      return `${did.key} is redriven: ${of(did.copies, "copy", "copies")} to hand out`;
    },
  };
}

function stop(row, url, at) {
  return {
    label: "Stop the redrive",
    sentence: "Nothing more of it is handed out; the rest stays parked, in order.",
    lines: () => [["Key", "redriven", "parked"]],
    act: async (asked) => `${(await post(url("stop"), { ...at, ...asked })).key} is parked`,
  };
}

function number(text) {
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) throw new Error(`${text || "nothing"} is no rate: it should be a number, 0 for no limit`);
  return value;
}
