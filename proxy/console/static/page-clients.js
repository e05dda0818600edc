// Clients connected to this proxy, and their leases.

import { get, path } from "./api.js";
import { h, labelled } from "./dom.js";
import { count, of } from "./format.js";
import { Table } from "./table.js";

export const title = "Clients";

export function open(ctx) {
  const group = h("input", { type: "search", value: ctx.query.get("group") ?? "", autocomplete: "off", "data-search": "" });
  const note = h("p", { class: "muted" });
  const table = new Table({
    caption: "Clients",
    key: (row) => String(row.connection),
    nothing: "No client is connected to this proxy.",
    advice: "Clients connect to its Thrift port, set by listen.thrift (default 9713).",
    columns: [
      { name: "client", label: "Client", wide: true, cell: (row) => row.groups.map((each) => each.client).filter(unique).join(", ") || "no pull yet", order: (row) => row.groups[0]?.client ?? "" },
      { name: "address", label: "Address", mono: true, cell: (row) => row.address, order: (row) => row.address },
      { name: "groups", label: "Groups", cell: (row) => row.groups.map((each) => each.group).join(", ") || "–", order: (row) => row.groups[0]?.group ?? "" },
      { name: "state", label: "State", cell: (row) => (row.waits ? { word: "waiting", kind: "ok", title: "its pull is waiting for messages" } : row.leases ? { word: "handling", kind: "busy", title: "it holds leases" } : { word: "idle", kind: "idle", title: "no pull and no lease" }), order: (row) => row.leases },
      { name: "leases", label: "Leases", number: true, cell: (row) => count(row.leases), order: (row) => row.leases },
      { name: "certificate", label: "Certificate", cell: (row) => row.certificate ?? "–", order: (row) => row.certificate ?? "" },
      { name: "connection", label: "Connection", number: true, cell: (row) => String(row.connection), order: (row) => row.connection },
    ],
  });
  ctx.every(3000, async () => {
    ctx.remember({ group: group.value.trim() });
    const found = await get(path("clients"), { group: group.value.trim() }, ctx);
    table.update(found.clients);
    note.textContent = `${of(found.connected, "connection")} at this proxy${found.connected > found.clients.length ? `, ${count(found.clients.length)} shown` : ""}.`;
  });
  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); ctx.again(); } },
    labelled("Group", group),
    h("button", { type: "submit" }, "Filter"),
  );
  return [form, table.element, note];
}

function unique(value, index, all) {
  return all.indexOf(value) === index;
}
