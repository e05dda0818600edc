// Records of the audit topic, newest first.

import { get, path } from "./api.js";
import { h, labelled } from "./dom.js";
import { moment, of, silentOf } from "./format.js";
import { Table } from "./table.js";

export const title = "Audit";

const SHOWN = 200;

export function open(ctx) {
  const filters = [["group", "Group"], ["topic", "Topic"], ["target", "Target"]].map(([name, label]) => [name, label, h("input", { type: "search", value: ctx.query.get(name) ?? "", autocomplete: "off", "data-search": name === "group" ? "" : null })]);
  const note = h("p", { class: "muted" });
  const table = new Table({
    caption: "Audit",
    key: (row) => `${row.id} ${row.phase}`,
    nothing: "No audit records.",
    advice: "Every change by an operator is recorded here before it is made.",
    columns: [
      { name: "at", label: "Time", number: true, cell: (row) => moment(row.at_ms), order: (row) => row.at_ms },
      { name: "actor", label: "Actor", cell: (row) => row.actor, order: (row) => row.actor },
      { name: "verb", label: "Action", cell: (row) => (row.failed ? { word: `${row.verb} failed`, kind: "bad", title: row.failed } : row.phase === "end" ? `${row.verb}, ended` : row.verb), order: (row) => row.verb },
      { name: "where", label: "Group / topic", cell: (row) => [row.group, row.topic].filter(Boolean).join(" / ") || "–", order: (row) => row.group },
      { name: "target", label: "Target", mono: true, wide: true, cell: (row) => row.target || "–", order: (row) => row.target },
      { name: "reason", label: "Reason", wide: true, cell: (row) => row.failed || row.reason || "–" },
      { name: "before", label: "Before", mono: true, wide: true, cell: (row) => plain(row.before) },
      { name: "after", label: "After", mono: true, wide: true, cell: (row) => plain(row.after) },
    ],
  });
  ctx.every(5000, async () => {
    const query = Object.fromEntries(filters.map(([name, , input]) => [name, input.value.trim()]));
    ctx.remember(query);
    const found = await get(path("audit"), { limit: SHOWN, ...query }, ctx);
    table.update(found.records.toReversed());
    const silent = silentOf(found);
    table.nothing.firstChild.textContent = silent.length ? "No audit records at the brokers that answer." : "No audit records.";
    const older = found.complete || silent.length ? "" : ", the newest ones: there may be older ones";
    note.textContent = [`${of(found.records.length, "record")} of all proxies${older}.`, ...silent].join(" ");
  });
  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); ctx.again(); } },
    filters.map(([, label, input]) => labelled(label, input)),
    h("button", { type: "submit" }, "Filter"),
  );
  return [form, table.element, note];
}

/** Format the state before or after a change: list items separated, empty fields omitted. */
function plain(value) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return value.map(plain).join("; ") || "–";
  if (typeof value !== "object") return String(value);
  const fields = Object.entries(value).filter(([, each]) => each !== null && each !== "");
  return fields.map(([name, each]) => `${name}: ${typeof each === "object" ? JSON.stringify(each) : each}`).join(", ") || "–";
}
