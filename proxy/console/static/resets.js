// Reset of a group's offset in a queue. A dry run comes first; the reset applies only to its base.

import { path, post } from "./api.js";
import { confirm } from "./dialog.js";
import { count, figure } from "./format.js";
import { givenTime, zoneName } from "./zone.js";

const KINDS = [["offset", "an offset"], ["time", "a time"], ["end", "the end offset (skip all messages)"]];

/** Ask for the target, show the effect, and reset. */
export function askReset(group, row, done) {
  const url = path("groups", group, "topics", row.topic, "queues", row.queue, "reset");
  let expect = null;
  confirm({
    title: `Reset ${row.queue} of ${group}`,
    about: `topic ${row.topic}: current offset ${figure(row.base)}, end offset ${figure(row.end)}`,
    done,
    verbs: [
      {
        name: "reset",
        label: "Reset",
        danger: true,
        sentence: "The group continues at another offset. Moving forward skips messages; moving back delivers them again.",
        fields: [
          { name: "kind", label: "Reset to", options: KINDS, value: "offset" },
          { name: "where", label: "Offset or time", value: String(row.base ?? ""), hint: `For example 812, or 2026-01-31 14:00 (${zoneName()}). Ignored for the end.` },
        ],
        command: (asked) => ["offsets", "reset", group, "--topic", row.topic, "--queue", row.queue, ...optionsOf(target(asked))],
        preview: async (asked) => {
          const seen = await post(url, { reason: asked.reason, to: target(asked), dry_run: true });
          expect = seen.from;
          return [
            ["Offset", count(seen.from), count(seen.to)],
            ["Skipped (at most)", 0, count(seen.skipped)],
            ["Delivered again (at most)", 0, count(seen.repeated)],
            ["Leases ended", 0, count(seen.leases_ended)],
            ["Parked keys", count(seen.parked_keys_kept), "kept"],
          ];
        },
        act: async (asked) => {
          const did = await post(url, { reason: asked.reason, to: target(asked), expect });
          return `${row.queue} reset from ${count(did.from)} to ${count(did.to)}`;
        },
      },
    ],
  });
}

function target({ kind, where }) {
  if (kind === "end") return { end: true };
  if (kind === "offset") {
    if (!/^\d{1,18}$/.test(where.trim())) throw new Error(`invalid offset "${where}": give a number such as 812`);
    return { offset: Number(where) };
  }
  return { time_ms: givenTime(where) };
}

function optionsOf({ offset, time_ms }) {
  if (offset !== undefined) return ["--to-offset", offset];
  return time_ms === undefined ? ["--skip"] : ["--to-time", new Date(time_ms).toISOString()];
}
