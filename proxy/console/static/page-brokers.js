// Brokers with the figures that they report of themselves: disk, log, rates, replicas.

import { get, path } from "./api.js";
import { commandLine } from "./copying.js";
import { h } from "./dom.js";
import { age, bytes, known, moment, NOTHING, of, rate, silentOf } from "./format.js";
import { Table } from "./table.js";

export const title = "Brokers";

/** Shares of the disk at which a broker deletes before its retention, and earlier. */
const FULL = 0.85;
const NEARLY_FULL = 0.75;

export function open(ctx) {
  const note = h("p", { class: "muted" });
  const table = new Table({
    caption: "Brokers",
    key: (row) => `${row.broker} ${row.id}`,
    nothing: "No broker is registered at the nameservers.",
    advice: "Check that brokers run, and that their nameserver is the one in this proxy's settings.",
    columns: [
      { name: "broker", label: "Broker", cell: (row) => row.broker, order: (row) => row.broker },
      { name: "role", label: "Role", cell: (row) => (row.role === "master" ? "master" : `slave ${row.id}`), order: (row) => row.id },
      { name: "state", label: "State", cell: (row) => row.state },
      { name: "address", label: "Address", mono: true, cell: (row) => row.address, copies: (row) => [row.address, `address ${row.address}`], order: (row) => row.address },
      { name: "disk", label: "Disk used", number: true, title: "Share of the disk with the log", cell: (row) => told(row, row.disk_used, diskOf), order: (row) => row.disk_used },
      { name: "log", label: "Log", number: true, title: "Size of the stored messages", cell: (row) => told(row, logSize(row), bytes), order: logSize },
      { name: "in", label: "In, messages/s", number: true, title: "In the last 10 s", cell: (row) => told(row, row.put_rate, rate), order: (row) => row.put_rate },
      { name: "out", label: "Out, messages/s", number: true, title: "In the last 10 s", cell: (row) => told(row, row.get_rate, rate), order: (row) => row.get_rate },
      { name: "sync", label: "In sync", title: "Ids of the replicas that have all messages", cell: (row) => row.in_sync ?? "–" },
      { name: "boot", label: "Started", number: true, cell: (row) => told(row, row.boot_ms, moment), order: (row) => row.boot_ms },
      { name: "version", label: "Version", cell: (row) => told(row, row.version, String) },
      { name: "cluster", label: "Cluster", cell: (row) => row.cluster, order: (row) => row.cluster },
    ],
  });
  ctx.every(10_000, async () => {
    const found = await get(path("brokers"), {}, ctx);
    table.update(found.brokers.map((row) => ({ ...row, state: stateOf(row, found.unanswered) })));
    const missing = found.complete ? [] : [`Only ${of(found.brokers.length, "replica")} are shown.`];
    note.textContent = ["Figures are those of masters; slaves report none.", ...missing, ...silentOf(found)].join(" ");
  });
  return [table.element, note, commandLine(["brokers", "ls"])];
}

function stateOf(row, unanswered) {
  if (unanswered[row.broker]) return { word: "no answer", kind: "bad", title: unanswered[row.broker] };
  if (row.role !== "master") return { word: "replica", kind: "idle" };
  if (row.disk_used >= FULL) return { word: "disk full", kind: "bad", title: "old messages are deleted before their retention ends" };
  if (row.clock_ahead_ms) return { word: "clock jumped", kind: "warn", title: `its wall clock is ${age(row.clock_ahead_ms)} ahead` };
  if (row.disk_used >= NEARLY_FULL) return { word: "disk filling", kind: "warn", title: "add disk space, or shorten the retention" };
  return { word: "ok", kind: "ok" };
}

/** Format a figure of a master; slaves report none. */
function told(row, value, write) {
  return row.role === "master" ? known(value, write) : NOTHING;
}

function diskOf(used) {
  const kind = used >= FULL ? "bad" : used >= NEARLY_FULL ? "warn" : "ok";
  return { meter: used, kind, text: `${(100 * used).toFixed(1)} %` };
}

function logSize(row) {
  return row.log_begin === null || row.log_end === null ? null : row.log_end - row.log_begin;
}
