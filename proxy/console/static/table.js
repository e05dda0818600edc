// A table updated in place: rows and buttons are kept, so new figures do not take the focus away.
// On a narrow screen each row is a card (parts.css).

import { copyButton } from "./copying.js";
import { badge, empty, h, meter } from "./dom.js";

/**
 * columns: {name, label, number, cell: row => text or {href, text} or {word, kind} or {meter, kind, text}, order: row =>
 * value to sort by, make: current => element created once per row, copies: row => [text, name of it]
 for a copy button, or null}. key: row => unique text. Until the first update it says "Loading…".
 */
export class Table {
  constructor({ caption, columns, key, nothing, advice, sort }) {
    this.columns = columns;
    this.key = key;
    this.rows = [];
    this.shown = new Map();
    this.sort = sort ?? null;
    this.body = h("tbody");
    this.heads = columns.map((column) => this.head(column));
    this.table = h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, this.heads)),
      this.body,
    );
    this.nothing = empty(nothing, advice);
    this.nothing.hidden = true;
    this.loading = h("p", { class: "loading" }, "Loading…");
    this.table.hidden = true;
    this.element = h("div", { class: "table", role: "region", "aria-label": caption, tabindex: "0" }, this.table, this.nothing, this.loading);
  }

  head(column) {
    const shown = column.order
      ? h("button", { type: "button", class: "sorts", onclick: () => this.turn(column.name) }, column.label)
      : column.unseen
        ? h("span", { class: "unseen" }, column.label)
        : column.label;
    return h("th", { scope: "col", class: column.number && "number", title: column.title }, shown);
  }

  turn(name) {
    const down = this.sort?.name === name ? !this.sort.down : true;
    this.sort = { name, down };
    this.update(this.rows);
  }

  update(rows) {
    this.rows = rows;
    const sorted = this.sorted(rows);
    this.columns.forEach((column, index) => {
      const by = this.sort?.name === column.name;
      if (by) this.heads[index].setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else this.heads[index].removeAttribute("aria-sort");
    });
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const seen = new Set();
    let place = this.body.firstElementChild;
    for (const row of sorted) {
      const name = this.key(row);
      seen.add(name);
      const line = this.shown.get(name) ?? this.line(name, row);
      this.fill(line, row);
      if (line.element === place) place = place.nextElementSibling;
      else this.body.insertBefore(line.element, place);
    }
    for (const [name, line] of this.shown) {
      if (!seen.has(name)) {
        line.element.remove();
        this.shown.delete(name);
      }
    }
    if (focused?.isConnected) focused.focus({ preventScroll: true }); // moving a row drops the focus
    this.loading.hidden = true;
    this.nothing.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
  }

  /** Remove all rows, and say "Loading…" until the next update. */
  wait() {
    this.update([]);
    this.nothing.hidden = true;
    this.loading.hidden = false;
  }

  sorted(rows) {
    const column = this.sort && this.columns.find((each) => each.name === this.sort.name);
    if (!column?.order) return rows;
    const sign = this.sort.down ? -1 : 1;
    return [...rows].sort((one, other) => {
      const [a, b] = [column.order(one) ?? -Infinity, column.order(other) ?? -Infinity];
      if (typeof a === "string" || typeof b === "string") return sign * String(a).localeCompare(String(b), "en", { numeric: true });
      return sign * (a - b);
    });
  }

  line(name, row) {
    const line = { row, cells: [], said: [] };
    line.cells = this.columns.map((column) =>
      h("td", { class: [column.number && "number", column.mono && "mono", column.wide && "wide"].filter(Boolean).join(" ") || null, "data-label": column.label }),
    );
    this.columns.forEach((column, index) => {
      if (column.make) line.cells[index].append(column.make(() => line.row));
    });
    line.element = h("tr", {}, line.cells);
    this.shown.set(name, line);
    return line;
  }

  fill(line, row) {
    line.row = row;
    this.columns.forEach((column, index) => {
      if (!column.cell) return;
      const value = column.cell(row);
      const said = typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
      if (line.said[index] === said) return;
      line.said[index] = said;
      const copies = column.copies?.(row);
      line.cells[index].replaceChildren(shown(value), ...(copies ? [copyButton(...copies)] : []));
    });
  }
}

function shown(value) {
  if (typeof value !== "object" || value === null) return String(value);
  if (value.href) return h("a", { href: value.href, title: value.title }, value.text);
  if (value.word) return badge(value);
  if (value.meter !== undefined) return meter(value);
  return String(value.text ?? "");
}
