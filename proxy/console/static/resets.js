// Moving a group in a queue: a dry run first, then with the base that it showed, or not at all.

import { path, post } from "./api.js";
import { confirm } from "./dialog.js";
import { count, moment } from "./format.js";

const KINDS = [["offset", "an offset"], ["time", "a time"], ["end", "the end: skip all that is there"]];

const TIME = /^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?$/;

/** Ask where to, show what it means, do it. */
export function askReset(group, row, done) {
  const url = path("groups", group, "topics", row.topic, "queues", row.queue, "reset");
  let expect = null;
  confirm({
    title: `Reset ${row.queue} of ${group}`,
    about: `topic ${row.topic}: offsets ${row.begin} to ${row.end}, the group stands at ${row.base}`,
    done,
    verbs: [
      {
        name: "reset",
        label: "Reset",
        danger: true,
        sentence: "The group goes on at another offset. Forward, messages are skipped; back, they are handed out again.",
        fields: [
          { name: "kind", label: "Go on at", options: KINDS, value: "offset" },
          { name: "where", label: "Offset, or time", value: String(row.base), hint: "A number, or a time as in 2026-01-31 14:00. Not looked at for the end." },
        ],
        preview: async (asked) => {
          const seen = await post(url, { reason: asked.reason, to: target(asked), dry_run: true });
          expect = seen.from;
          return [
            ["Offset", count(seen.from), count(seen.to)],
            ["Skipped, at most", 0, count(seen.skipped)],
            ["Handed out again, at most", 0, count(seen.repeated)],
            ["Leases that end", 0, count(seen.leases_ended)],
            ["Parked keys", count(seen.parked_keys_kept), "kept"],
          ];
        },
        act: async (asked) => {
          const did = await post(url, { reason: asked.reason, to: target(asked), expect });
          return `${row.queue} goes on at ${count(did.to)}, from ${count(did.from)}`;
        },
      },
    ],
  });
}

function target({ kind, where }) {
  if (kind === "end") return { end: true };
  if (kind === "offset") {
    if (!/^\d{1,18}$/.test(where.trim())) throw new Error(`${where || "nothing"} is no offset: it should be a number such as 812`);
    return { offset: Number(where) };
  }
  const ms = TIME.test(where.trim()) ? Date.parse(where.trim().replace(" ", "T")) : NaN; // it takes 812 for a year
  if (Number.isNaN(ms)) throw new Error(`${where || "nothing"} is no time: it should be as in ${moment(Date.now() - 90_000_000)}`);
  return { time_ms: ms };
}
