// Leases: messages held by clients, and their deadlines.

import { get, path, post } from "./api.js";
import { confirm } from "./dialog.js";
import { button, h, labelled } from "./dom.js";
import { age, count, keyName, of } from "./format.js";
import { keyLink, messageLink } from "./groups.js";
import { Table } from "./table.js";

export const title = "Leases";

const SHOWN = 500;

export function open(ctx) {
  const filters = Object.fromEntries(
    [["key", "Key"], ["client", "Client"], ["topic", "Topic"], ["queue", "Queue"]].map(([name, label]) => [name, [label, h("input", { type: "search", value: ctx.query.get(name) ?? "", autocomplete: "off", "data-search": name === "key" ? "" : null })]]),
  );
  const note = h("p", { class: "muted" });
  const table = new Table({
    caption: "Leases",
    key: (row) => row.lease,
    nothing: "No message is leased.",
    advice: "A lease begins when a client pulls a message, and ends with the verdict or the visibility timeout.",
    columns: [
      { name: "key", label: "Key", mono: true, wide: true, cell: (row) => (row.key === null ? keyName(null) : { href: keyLink(ctx.group, row.topic, row.key), text: keyName(row.key) }), copies: (row) => (row.key === null ? null : [row.key, `key ${row.key}`]), order: (row) => row.key ?? "" },
      { name: "message", label: "Message", mono: true, cell: (row) => ({ href: messageLink(ctx.group, row.topic, `${row.queue}@${row.offset}`), text: `${row.queue}@${row.offset}` }), copies: (row) => [`${row.queue}@${row.offset}`, `location ${row.queue}@${row.offset}`], order: (row) => row.offset },
      { name: "client", label: "Client", cell: (row) => row.client || `connection ${row.connection}`, order: (row) => row.client },
      { name: "attempt", label: "Attempt", number: true, cell: (row) => count(row.attempt), order: (row) => row.attempt },
      { name: "ends", label: "Ends in", number: true, cell: (row) => age(row.ends_in_ms), order: (row) => row.ends_in_ms },
      { name: "run", label: "Run", title: "First lease of its ordered run", cell: (row) => (row.run === null || row.run === row.lease ? "–" : row.run) },
      { name: "lease", label: "Lease", mono: true, wide: true, cell: (row) => row.lease },
      { name: "acts", label: "Actions", unseen: true, make: (current) => button("Actions…", () => ask(ctx, current()), { class: "small" }) },
    ],
  });
  const again = () => ctx.again();
  const form = h(
    "form",
    { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); again(); } },
    Object.values(filters).map(([label, input]) => labelled(label, input)),
    h("button", { type: "submit" }, "Filter"),
  );
  ctx.every(3000, async () => {
    const query = Object.fromEntries(Object.entries(filters).map(([name, [, input]]) => [name, input.value.trim()]));
    ctx.remember(query);
    const found = await get(path("groups", ctx.group, "leases"), { limit: SHOWN, ...query }, ctx);
    table.update(found.leases);
    note.textContent = `${of(found.live, "lease")} at this proxy${found.live > found.leases.length ? `, the ${count(found.leases.length)} next to expire are shown` : ""}.`;
  });
  return [form, table.element, note];
}

function ask(ctx, row) {
  const url = (verb) => path("groups", ctx.group, "leases", row.lease, verb);
  confirm({
    title: `Lease of ${row.key === null ? "a message without order" : keyName(row.key)}`,
    about: `${row.lease}, held by ${row.client || `connection ${row.connection}`}`,
    done: () => ctx.again(),
    verbs: [
      {
        name: "extend",
        label: "Extend",
        sentence: "The client gets more time before the message is delivered again.",
        fields: [{ name: "seconds", label: "Seconds from now", value: "", inputmode: "numeric", hint: "Default and maximum: one visibility timeout", read: (text) => text.trim() }],
        lines: () => [["Ends in", age(row.ends_in_ms), "as given above"]],
        act: async ({ reason, seconds }) => {
          const did = await post(url("extend"), { reason, ...(seconds ? { ms: milliseconds(seconds) } : {}) });
          return `The lease ends in ${age(did.ends_in_ms)}`;
        },
      },
      {
        name: "revoke",
        label: "Revoke",
        danger: true,
        sentence: "The lease and its ordered run end now. The message is delivered again, and the client's verdict is ignored.",
        lines: () => [["Lease", `ends in ${age(row.ends_in_ms)}`, "ended"]],
        act: async ({ reason }) => {
          await post(url("revoke"), { reason });
          return `Revoked: ${row.queue}@${row.offset} is delivered again`;
        },
      },
    ],
  });
}

function milliseconds(text) {
  const seconds = Number(text);
  if (!(seconds > 0)) throw new Error(`invalid duration "${text}": give seconds, above 0`);
  return Math.round(seconds * 1000);
}
