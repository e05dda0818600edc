// Dead letters and parked keys of a group.

import { h } from "./dom.js";
import { deadLetters } from "./dead-letters.js";
import { parkedKeys } from "./parked-keys.js";

export const title = "Dead letters and parked keys";

export function open(ctx) {
  const address = new Filters(ctx);
  const lists = [parkedKeys(ctx, address), deadLetters(ctx, address)];
  ctx.every(3000, lists[0].look);
  ctx.every(5000, lists[1].look);
  return [h("h2", {}, "Parked keys"), ...lists[0].elements, h("h2", {}, "Dead letters"), ...lists[1].elements];
}

/** The filters of both lists, which the address has. */
class Filters {
  constructor(ctx) {
    this.ctx = ctx;
    this.query = Object.fromEntries(ctx.query);
  }

  get(name) {
    return this.query[name] ?? "";
  }

  /** Return all filters with *more* in place of some. */
  with(more) {
    return { ...this.query, ...more };
  }

  remember(more) {
    this.query = this.with(more);
    this.ctx.remember(this.query);
  }
}
