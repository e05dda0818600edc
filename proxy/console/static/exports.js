// Export of messages as lines of JSON (NDJSON) to a file of this browser.

import { headers, refuse } from "./api.js";
import { commandLine } from "./copying.js";
import { open } from "./dialog.js";
import { button, h, labelled } from "./dom.js";
import { bytes, of } from "./format.js";
import { notice } from "./notices.js";

const MOST_BYTES = 256 * 1024 ** 2;
const LINE_END = 10;

/**
 * Ask for the maximum number of *thing*s ("message"), read *urls* with *query*, and save the lines
 * as *file*. limited: the request takes a count. *about*: what a line has. *words*: the command line
 * for larger exports.
 */
export function askExport({ title, thing, about, urls, query, file, words, limited = true }) {
  const most = h("input", { type: "text", name: "count", value: "10000", inputmode: "numeric", autocomplete: "off" });
  const progress = h("p", { class: "muted", role: "status" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const does = h("button", { type: "submit", class: "main" }, "Export");
  const aborting = new AbortController();

  async function submit(event) {
    event.preventDefault();
    wrong.textContent = "";
    does.disabled = true;
    try {
      const wanted = limited ? { ...query, count: countOf(most.value) } : query;
      const found = { pieces: [], count: 0, size: 0 };
      for (const url of urls) {
        await read(url, wanted, aborting.signal, found, () => {
          progress.textContent = `${of(found.count, thing)}, ${bytes(found.size)}`;
        });
      }
      if (found.count) save(found.pieces, file);
      dialog.close();
      notice(found.count ? `${of(found.count, thing)} exported to ${file}` : `There is no ${thing} to export`);
    } catch (error) {
      if (error.name !== "AbortError") wrong.textContent = error.message;
    } finally {
      does.disabled = false;
    }
  }

  const form = h(
    "form",
    { novalidate: true, onsubmit: submit },
    h("h2", { id: "export-title" }, title),
    h("p", {}, about ?? `The file has one JSON object a line, with the properties and body of a ${thing}.`),
    limited && labelled(`Maximum number of ${thing}s`, most, "Empty: no limit"),
    commandLine(words),
    progress,
    wrong,
    h("div", { class: "buttons" }, button("Cancel", () => dialog.close()), does),
  );
  const dialog = h("dialog", { "aria-labelledby": "export-title" }, form);
  dialog.addEventListener("close", () => aborting.abort());
  open(dialog);
  (limited ? most : does).focus();
}

function countOf(text) {
  const plain = text.trim().replaceAll(",", "");
  if (plain === "") return null;
  if (!/^[1-9]\d{0,14}$/.test(plain)) throw new Error(`invalid number "${text}": give 1 or more, or nothing`);
  return plain;
}

/** Add all lines to *found*. Throws if the response is incomplete, or too large for a browser. */
async function read(url, query, signal, found, tell) {
  const given = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  const answer = await fetch(given ? `${url}?${given}` : url, { headers: headers(), cache: "no-store", signal });
  await refuse(answer);
  const reader = answer.body.getReader();
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      const silent = answer.headers.get("Orderlane-Unanswered");
      throw new Error(silent ? `${silent} did not answer, so the export would be incomplete and was not saved: the command prints what the other brokers have` : "the export was cut short by the proxy: nothing was saved, try again");
    }
    if (part.done) return;
    found.pieces.push(part.value);
    found.size += part.value.length;
    found.count += part.value.reduce((ends, byte) => ends + (byte === LINE_END ? 1 : 0), 0);
    tell();
    if (found.size > MOST_BYTES) {
      reader.cancel();
      throw new Error(`the export exceeds ${bytes(MOST_BYTES)}: ask for less, or run the command`);
    }
  }
}

function save(pieces, file) {
  const url = URL.createObjectURL(new Blob(pieces, { type: "application/x-ndjson" }));
  h("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
