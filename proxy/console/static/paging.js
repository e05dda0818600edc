// Links to the pages of a list. Each page has an address, so Back and bookmarks work.

import { h } from "./dom.js";

/** Return the address of this page with *query* in place of the current one. */
export function here(query) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  const [path] = location.hash.split("?");
  return text ? `${path}?${text}` : path;
}

/** Links of a list: to its first page and to the next one. */
export class Pager {
  constructor(name) {
    this.element = h("nav", { class: "pager", "aria-label": `Pages of ${name}`, hidden: true });
  }

  /** first, next: queries of the addresses, null for none; *nextLabel*: text of the second link. */
  show({ first, next, nextLabel = "Next page" }) {
    const links = [first && ["First page", here(first)], next && [nextLabel, here(next)]].filter(Boolean);
    this.element.hidden = links.length === 0;
    const said = JSON.stringify(links);
    if (this.said === said) return; // keep the focus
    this.said = said;
    this.element.replaceChildren(...links.map(([label, href]) => h("a", { href }, label)));
  }
}
