/** Verdicts for the proxy that holds their leases, grouped as on the wire. Pure. */

import { MAX_I32 } from "./arguments.js";
import { shown } from "./errors.js";
import type { AckBatch, Context, LeaseRef, Nack } from "./idl.js";
import { Defer, type Outcome, Reject, Retry } from "./outcome.js";

/** Characters of an error's text shown to operators. */
export const MAX_REASON = 200;

/** Verdicts on leases of one proxy, in no order. Sending them is idempotent. */
export class Verdicts {
  /** When the oldest was added; null if empty. */
  sinceMs: number | null = null;
  /** After this all their leases have expired. */
  usefulUntilMs = 0;
  /** Whether they may release a message that a pull waits for. */
  hurry = false;
  readonly #batches = new Map<string, AckBatch>();

  get isEmpty(): boolean {
    return this.sinceMs === null;
  }

  get size(): number {
    let size = 0;
    for (const batch of this.#batches.values()) {
      size += batch.acked.length + batch.nacked.length + batch.released.length;
    }
    return size;
  }

  /** Add the verdict on one lease. `context` is echoed to the proxy unchanged. */
  add(
    context: Context,
    leaseId: number,
    outcome: Outcome,
    { deadlineMs, nowMs }: { deadlineMs: number; nowMs: number },
  ): void {
    const queue = `${context.topic}\0${context.qid}`;
    let batch = this.#batches.get(queue);
    if (batch === undefined) {
      batch = { context, acked: [], nacked: [], released: [] };
      this.#batches.set(queue, batch);
    }
    if (outcome === undefined) batch.acked.push(leaseId);
    else if (outcome instanceof Defer) batch.released.push(leaseId);
    else batch.nacked.push(nack(leaseId, outcome));
    this.sinceMs ??= nowMs;
    this.keepUntil(deadlineMs);
  }

  /** The leases of the verdicts. */
  *references(): Iterable<LeaseRef> {
    for (const { context, acked, nacked, released } of this.#batches.values()) {
      for (const leaseId of acked) yield { context, leaseId };
      for (const { leaseId } of nacked) yield { context, leaseId };
      for (const leaseId of released) yield { context, leaseId };
    }
  }

  /** The wire form. */
  batches(): AckBatch[] {
    return [...this.#batches.values()];
  }

  /** Add the verdicts of a failed request. */
  absorb(other: Verdicts): void {
    for (const [queue, batch] of other.#batches) {
      const mine = this.#batches.get(queue);
      if (mine === undefined) {
        this.#batches.set(queue, batch);
      } else {
        mine.acked = [...batch.acked, ...mine.acked];
        mine.nacked = [...batch.nacked, ...mine.nacked];
        mine.released = [...batch.released, ...mine.released];
      }
    }
    if (other.sinceMs !== null) {
      this.sinceMs = Math.min(other.sinceMs, this.sinceMs ?? other.sinceMs);
    }
    this.keepUntil(other.usefulUntilMs);
    this.hurry ||= other.hurry;
  }

  /** Record that one of their leases may live until `atMs`. */
  keepUntil(atMs: number): void {
    this.usefulUntilMs = Math.max(this.usefulUntilMs, atMs);
  }
}

/** The verdict for any error, also one whose fields are unreadable: its message would be held. */
function nack(leaseId: number, outcome: Error): Nack {
  if (outcome instanceof Reject) {
    return { leaseId, reject: true, reason: sendable(shown(() => outcome.reason ?? "")) };
  }
  if (outcome instanceof Retry) {
    const afterMs: unknown = outcome.afterMs; // a subclass may have set anything
    if (!(typeof afterMs === "number" && afterMs >= 0)) return { leaseId };
    return { leaseId, retryAfterMs: Math.min(Math.floor(afterMs), MAX_I32) };
  }
  const text = `${shown(() => outcome.name)}: ${shown(() => outcome.message)}`;
  return { leaseId, reason: sendable(text) };
}

/** Shorten a text, and remove halves of surrogate pairs, which UTF-8 cannot encode. */
function sendable(text: string): string {
  return [...text.slice(0, 2 * MAX_REASON)].slice(0, MAX_REASON).join("").toWellFormed();
}
