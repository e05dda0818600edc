/** Verdicts on their way to the proxy that holds the leases, grouped as on the wire. Pure. */

import type { AckBatch, Context, LeaseRef, Nack } from "./idl.js";
import { Defer, type Outcome, Reject, Retry } from "./outcome.js";

/** Characters of an error's text that go to the operator. */
export const MAX_REASON = 200;
const MAX_I32 = 2 ** 31 - 1;

/** Verdicts on leases of one proxy, in no order; sending them twice has the effect of once. */
export class Verdicts {
  /** When the oldest came in; null if there is none. */
  sinceMs: number | null = null;
  /** After this no lease among them can be alive. */
  usefulUntilMs = 0;
  /** Whether they may release what a pull waits for. */
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

  /** Add the verdict on one lease. `context` goes back to the proxy as it came. */
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
    this.usefulUntilMs = Math.max(this.usefulUntilMs, deadlineMs);
  }

  /** The leases that they speak of. */
  *references(): Iterable<LeaseRef> {
    for (const { context, acked, nacked, released } of this.#batches.values()) {
      for (const leaseId of acked) yield { context, leaseId };
      for (const { leaseId } of nacked) yield { context, leaseId };
      for (const leaseId of released) yield { context, leaseId };
    }
  }

  /** What goes on the wire. */
  batches(): AckBatch[] {
    return [...this.#batches.values()];
  }

  /** Take those of `other` in, as after a send that failed. */
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
    this.usefulUntilMs = Math.max(this.usefulUntilMs, other.usefulUntilMs);
    this.hurry ||= other.hurry;
  }
}

function nack(leaseId: number, outcome: Error): Nack {
  if (outcome instanceof Reject) {
    return { leaseId, reject: true, reason: sendable(outcome.reason) };
  }
  if (outcome instanceof Retry) {
    if (outcome.afterMs === undefined) return { leaseId };
    return { leaseId, retryAfterMs: Math.min(Math.floor(outcome.afterMs), MAX_I32) };
  }
  return { leaseId, reason: sendable(`${outcome.name}: ${outcome.message}`) };
}

/** Short, and without halves of surrogate pairs, which no UTF-8 text can hold. */
function sendable(text: string): string {
  return [...text.slice(0, 2 * MAX_REASON)].slice(0, MAX_REASON).join("").toWellFormed();
}
