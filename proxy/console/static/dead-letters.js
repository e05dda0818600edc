// Dead letters of a group: filtered, page by page, sent to their topics again.

import { get, path, post } from "./api.js";
import { bodyView, propertiesView } from "./body.js";
import { CommandLine, commandLine, copyButton } from "./copying.js";
import { confirm } from "./dialog.js";
import { badge, button, facts, h, labelled } from "./dom.js";
import { askExport } from "./exports.js";
import { count, figure, moment, of, silentOf } from "./format.js";
import { Pager } from "./paging.js";
import { rateOf } from "./parked-keys.js";
import { Table } from "./table.js";
import { givenTime, zoneName } from "./zone.js";

const SHOWN = 100;

/** Return the elements of the list, and what reads it. *address* has the filters. */
export function deadLetters(ctx, address) {
  const url = (...more) => path("groups", ctx.group, "dead-letters", ...more);
  const input = (name, more) => h("input", { type: "search", value: address.get(name), autocomplete: "off", maxlength: 500, ...more });
  const [topic, key, reason, since] = [input("topic"), input("key", { "data-search": "" }), input("reason"), input("since", { placeholder: "2026-01-31 14:00" })];
  const all = h("input", { type: "checkbox", checked: address.get("all") === "true" });
  const head = h("div", { class: "tools" });
  const note = h("p", { class: "muted" });
  const pager = new Pager("dead letters");
  const command = new CommandLine();
  const whole = h("section", { class: "one", hidden: true, "aria-label": "One dead letter" });
  const table = new Table({
    caption: "Dead letters",
    key: (row) => row.dead_letter,
    nothing: "No dead letters.",
    advice: "A message becomes a dead letter when it uses up its deliveries and on_exhausted is dead_letter. Later messages of its key continue.",
    columns: [
      { name: "letter", label: "Dead letter", mono: true, cell: (row) => row.dead_letter, copies: (row) => [row.dead_letter, `location ${row.dead_letter}`], order: (row) => row.store_ms },
      { name: "topic", label: "Original topic", cell: (row) => row.topic ?? "–", order: (row) => row.topic ?? "" },
      { name: "key", label: "Key", mono: true, wide: true, cell: (row) => row.key ?? "–", copies: (row) => (row.key ? [row.key, `key ${row.key}`] : null), order: (row) => row.key ?? "" },
      { name: "attempts", label: "Attempts", number: true, cell: (row) => figure(row.attempts), order: (row) => row.attempts },
      { name: "reason", label: "Reason", wide: true, cell: (row) => row.reason ?? "–" },
      { name: "failed", label: "Last failure", number: true, cell: (row) => moment(row.last_failure_ms ?? row.store_ms), order: (row) => row.last_failure_ms ?? row.store_ms },
      { name: "redrives", label: "Redrives", number: true, cell: (row) => count(row.redrives), order: (row) => row.redrives },
      { name: "acts", label: "Actions", unseen: true, make: (current) => button("View", () => ctx.load(() => view(current().dead_letter)), { class: "small" }) },
    ],
  });

  const filter = () => ({ topic: topic.value.trim(), key: key.value.trim(), reason: reason.value.trim(), since: since.value.trim(), all: all.checked ? "true" : "" });

  /** Return the query of the API for the filter. */
  function wanted() {
    const { since: from, ...query } = filter();
    return { ...query, since_ms: from ? givenTime(from) : null };
  }

  async function view(letter) {
    const found = await get(url("show"), { dead_letter: letter }, ctx);
    whole.hidden = false;
    whole.replaceChildren(...wholeLetter(ctx.group, found));
    whole.scrollIntoView({ block: "nearest" });
    address.remember({ letter });
  }

  async function look() {
    const query = wanted();
    const positions = address.get("positions");
    const found = await get(url(), { ...query, positions, limit: SHOWN }, ctx);
    const filtered = Object.values(query).some(Boolean);
    const silent = silentOf(found);
    const where = silent.length ? " at the brokers that answer" : "";
    table.nothing.firstChild.textContent = filtered && found.waiting !== 0 ? `No dead letter matches the filter${where}.` : `No dead letters${where}.`;
    table.update(found.dead_letters);
    const said = JSON.stringify([found.redrive, found.waiting !== 0, found.dead_letters.length > 0]);
    if (head.dataset.said !== said) head.replaceChildren(...redriveOf(ctx, url, found), ...(found.dead_letters.length ? [button("Export dead letters…", () => ctx.load(async () => exportOf(ctx, url, wanted(), options())))] : []));
    head.dataset.said = said;
    pager.show({
      first: positions ? address.with({ ...filter(), positions: "" }) : null,
      next: found.complete ? null : address.with({ ...filter(), positions: found.positions }),
      nextLabel: found.dead_letters.length ? "Next page" : "Search on",
    });
    note.textContent = [`${of(found.waiting, "dead letter")} to redrive${found.complete ? "" : "; there are more to search than this page covers"}.`, ...silent].join(" ");
    command.show(["dead-letters", "ls", ctx.group, ...options()]);
  }

  function options() {
    const { since_ms: from, ...query } = wanted();
    return [["--topic", query.topic], ["--key", query.key], ["--since", from === null ? "" : new Date(from).toISOString()], ["--reason", query.reason], ...(query.all ? ["--all"] : [])];
  }

  function filtered(event) {
    event.preventDefault();
    address.remember({ ...filter(), positions: "" });
    ctx.load(look);
  }

  const form = h(
    "form",
    { class: "tools", role: "search", "aria-label": "Dead letters", onsubmit: filtered },
    labelled("Key", key),
    labelled("Original topic", topic),
    labelled("Reason contains", reason),
    labelled(`Stored since, ${zoneName()}`, since),
    labelled("Include redriven", all),
    h("button", { type: "submit" }, "Filter"),
  );
  if (address.get("letter")) ctx.load(() => view(address.get("letter")));
  return { look, elements: [form, whole, table.element, pager.element, note, head, command.element] };
}

function exportOf(ctx, url, query, options) {
  askExport({
    title: `Export dead letters of ${ctx.group}`,
    thing: "dead letter",
    urls: [url("export")],
    query,
    file: `${ctx.group}-dead-letters.ndjson`,
    words: ["dead-letters", "export", ctx.group, ...options],
  });
}

function redriveOf(ctx, url, { waiting, redrive }) {
  const running = redrive && redrive.state === "running";
  const again = () => ctx.again();
  const parts = [];
  if (redrive) parts.push(h("span", {}, "Last redrive at this proxy: ", badge({ word: redrive.state, kind: running ? "busy" : "idle" }), ` ${count(redrive.sent)} sent, ${count(redrive.skipped)} skipped, ${count(redrive.left)} left, by ${redrive.by ?? "–"}${redrive.reason ? `: ${redrive.reason}` : ""}${redrive.note ? `: ${redrive.note}` : ""}`));
  if (running) parts.push(button("Stop…", () => confirm({ title: "Stop the redrive", done: again, verbs: [{ name: "stop", label: "Stop", sentence: "No further dead letters are sent. The next redrive continues from here.", lines: () => [["Redrive", redrive.state, "stopped"]], act: async (asked) => `Stopped: ${count((await post(url("stop"), asked)).left)} left` }] })));
  if (waiting !== 0 && !running) parts.push(button("Redrive all…", () => confirm({ title: `Redrive the dead letters of ${ctx.group}`, done: again, verbs: [redriveAll(url, ctx.group)] })));
  return parts;
}

function redriveAll(url, group) {
  const sent = ({ reason, rate }) => ({ reason, rate });
  return {
    name: "redrive",
    label: "Redrive",
    danger: true,
    sentence: "Each dead letter is sent to its original topic as a new message, one at a time. Other groups of that topic receive it too. The filter does not apply: all are sent.",
    fields: [{ name: "rate", label: "Rate limit, messages/s", value: "0", inputmode: "decimal", hint: "0: no limit", read: rateOf }],
    command: ({ rate }) => ["dead-letters", "redrive", group, ["--rate", rate || ""]],
    preview: async (asked) => [["Dead letters left", count((await post(url("redrive"), { ...sent(asked), dry_run: true })).left), "0, all sent"]],
    act: async (asked) => {
      const did = await post(url("redrive"), sent(asked));
      return `Redrive ${did.state}: ${count(did.left)} left`;
    },
  };
}

function wholeLetter(group, letter) {
  return [
    h("h2", {}, "Dead letter ", h("span", { class: "mono" }, letter.dead_letter), copyButton(letter.dead_letter, `location ${letter.dead_letter}`)),
    facts([
      ["Origin", `${letter.topic ?? "unknown"} ${letter.origin ?? ""}`],
      ["Key", letter.key === null ? "none" : h("span", { class: "mono" }, letter.key, copyButton(letter.key, `key ${letter.key}`))],
      ["Attempts", figure(letter.attempts)],
      ["Reason", letter.reason ?? "unknown"],
      ["First failure", moment(letter.first_failure_ms)],
      ["Last failure", moment(letter.last_failure_ms)],
      ["Redrives", count(letter.redrives)],
      ["Id", h("span", { class: "mono" }, letter.message_id)],
    ]),
    bodyView(letter),
    propertiesView(letter.properties),
    commandLine(["dead-letters", "show", group, letter.dead_letter]),
  ];
}

