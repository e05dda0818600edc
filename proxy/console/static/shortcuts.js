// Keyboard shortcuts and their help.

import { button, h } from "./dom.js";
import { open } from "./dialog.js";

const GOES = { g: ["Groups", "#/groups"], t: ["Topics", "#/topics"], b: ["Brokers", "#/brokers"], c: ["Clients", "#/clients"], a: ["Audit", "#/audit"] };
const OF_GROUP = { k: ["Keys", "keys"], l: ["Leases", "leases"], d: ["Dead letters and parked keys", "dead-letters"], m: ["Messages", "messages"], o: ["Order key", "order-key"] };

/** Show the help. */
export function help() {
  const lines = [
    ["?", "this help"],
    ["/", "the search or filter of the page"],
    ["r", "refresh now"],
    ["Esc", "close a dialog"],
    ...Object.entries(GOES).map(([key, [name]]) => [`g ${key}`, `go to ${name}`]),
    ...Object.entries(OF_GROUP).map(([key, [name]]) => [`g ${key}`, `go to ${name} of the current group`]),
  ];
  const dialog = h(
    "dialog",
    { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keyboard shortcuts"),
    h("dl", { class: "shortcuts" }, lines.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)))),
    h("div", { class: "buttons" }, button("Close", () => dialog.close(), { class: "main" })),
  );
  open(dialog);
}

/** Handle shortcuts. *again* refreshes the page; *group* returns the current group, if any. */
export function listen({ again, group }) {
  let going = false;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (going) {
      going = false;
      const page = OF_GROUP[event.key]?.[1];
      if (page && group()) location.hash = `#/groups/${encodeURIComponent(group())}/${page}`;
      else if (GOES[event.key]) location.hash = GOES[event.key][1];
      return;
    }
    if (event.key === "?") help();
    else if (event.key === "g") going = true;
    else if (event.key === "r") again();
    else if (event.key === "/") {
      const search = document.querySelector("main [data-search]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });
}
