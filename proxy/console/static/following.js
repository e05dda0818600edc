// New messages of a topic, kept from the moment on at which they are followed.

import { get } from "./api.js";
import { count, of, silentOf } from "./format.js";

const AT_ONCE = 200;
const PAGES_A_LOOK = 5;
const KEPT = 500;

/** Reads new messages of the topic at *url*, once; ``rows``: the newest first, at most 500. */
export class Followed {
  constructor(ctx, url) {
    this.ctx = ctx;
    this.url = url;
    this.on = false;
    this.rows = [];
    this.seen = 0;
    this.gaps = 0;
    this.busy = false;
    this.silent = [];
  }

  /** Follow messages that match *query*, behind the last ones of *page*, or from now on. */
  start(query, page) {
    this.on = true;
    this.query = query;
    this.positions = page?.positions ?? null;
    this.rows = page ? page.messages.toReversed() : [];
  }

  stop() {
    this.on = false;
  }

  /** Read what is new. Where too much is, skip to the end. */
  async look() {
    if (this.busy) return;
    this.busy = true;
    try {
      for (let pages = 0; pages < PAGES_A_LOOK; pages += 1) {
        const from = this.positions ? { positions: this.positions } : { start: "end" };
        const page = await get(this.url, { ...this.query, ...from, limit: AT_ONCE }, this.ctx);
        if (!this.on) return;
        this.positions = page.positions;
        this.silent = silentOf(page);
        this.seen += page.messages.length;
        this.rows = [...page.messages.toReversed(), ...this.rows].slice(0, KEPT);
        if (page.complete) return;
      }
      this.positions = null;
      this.gaps += 1;
    } finally {
      this.busy = false;
    }
  }

  sentence() {
    const gaps = this.gaps ? ` ${of(this.gaps, "gap")}: more messages arrived than this page reads; narrow the filter.` : "";
    const kept = this.rows.length === KEPT ? ` The newest ${count(KEPT)} are shown.` : "";
    return [`Following: ${of(this.seen, "new message")}.${kept}${gaps}`, ...this.silent].join(" ");
  }
}
