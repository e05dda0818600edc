// Reset of a group in all queues of its topics, or of one topic. A dry run comes first.

import { path, post } from "./api.js";
import { confirm } from "./dialog.js";
import { button } from "./dom.js";
import { count, of } from "./format.js";
import { sum } from "./groups.js";
import { givenTime, zoneName } from "./zone.js";

const KINDS = [["time", "a time"], ["begin", "the oldest stored message"], ["end", "the end offset (skip all messages)"]];

/** Queues with a line of their own in the preview. */
const SHOWN_QUEUES = 12;

/** Return a button that resets the group of *ctx*. */
export function groupResetButton(ctx) {
  return button("Reset the group…", () => askGroupReset(ctx, ctx.live.overview?.groups[ctx.group]?.topics.map((topic) => topic.name) ?? []));
}

function askGroupReset(ctx, topics) {
  const ask = (asked, dryRun) => post(path("groups", ctx.group, "offsets", "reset"), { reason: asked.reason, topic: asked.topic || undefined, to: target(asked), dry_run: dryRun });
  confirm({
    title: `Reset group ${ctx.group}`,
    done: () => ctx.again(),
    verbs: [
      {
        name: "reset",
        label: "Reset",
        danger: true,
        sentence: "The group continues at other offsets in all these queues. Moving forward skips messages; moving back delivers them again. Leases end; parked keys stay parked.",
        fields: [
          { name: "topic", label: "Topic", options: [["", "all topics of the group"], ...topics.map((name) => [name, name])], value: "" },
          { name: "kind", label: "Reset to", options: KINDS, value: "time" },
          { name: "where", label: "Time", hint: `Such as 2026-01-31 14:00 (${zoneName()}). Ignored for the oldest message and the end.` },
        ],
        command: (asked) => ["offsets", "reset", ctx.group, ["--topic", asked.topic], ...optionsOf(target(asked))],
        preview: async (asked) => linesOf(await ask(asked, true)),
        act: async (asked) => {
          const did = await ask(asked, false);
          const rest = did.elsewhere ? `; not in ${of(did.elsewhere, "queue")} of other proxies, repeat it at ${did.owners.join(", ") || "them (they publish no address)"}` : "";
          return `Reset ${of(did.queues.length, "queue")} of ${ctx.group}${rest}`;
        },
      },
    ],
  });
}

function linesOf(plan) {
  const total = (name) => sum(plan.queues, (row) => row[name]);
  const left = plan.queues.length - SHOWN_QUEUES;
  return [
    ...plan.queues.slice(0, SHOWN_QUEUES).map((row) => [`${row.topic} ${row.queue}`, count(row.from), count(row.to)]),
    ...(left > 0 ? [[of(left, "further queue"), "", "likewise"]] : []),
    ["Skipped (at most)", 0, count(total("skipped"))],
    ["Delivered again (at most)", 0, count(total("repeated"))],
    ["Leases ended", 0, count(total("leases_ended"))],
    ["Parked keys", count(total("parked_keys_kept")), "kept"],
    ...(plan.elsewhere ? [["Queues of other proxies", count(plan.elsewhere), `kept: repeat it at ${plan.owners.join(", ") || "them"}`]] : []),
  ];
}

function target({ kind, where }) {
  return kind === "time" ? { time_ms: givenTime(where) } : { [kind]: true };
}

function optionsOf({ time_ms, begin }) {
  if (time_ms !== undefined) return ["--to-time", new Date(time_ms).toISOString()];
  return [begin ? "--to-earliest" : "--skip"];
}
