/** What may become of a message. */

import { textOf } from "./errors.js";

/**
 * Thrown by a handler: give me this message again. Any other error means the same, and is logged.
 */
export class Retry extends Error {
  override readonly name = "Retry";
  /** Milliseconds from now; undefined: after the group's next retry interval. Its key waits. */
  readonly afterMs: number | undefined;

  constructor({ afterMs }: { afterMs?: number | undefined } = {}) {
    if (afterMs !== undefined && !(afterMs >= 0)) {
      throw new RangeError(`afterMs is ${afterMs}: it should be 0 or more milliseconds`);
    }
    super(afterMs === undefined ? "retry" : `retry after ${afterMs} ms`);
    this.afterMs = afterMs;
  }
}

/** Thrown by a handler: no retry will help; the group's failure policy applies at once. */
export class Reject extends Error {
  override readonly name = "Reject";
  readonly reason: string;

  constructor(reason = "") {
    super(reason || "rejected");
    this.reason = reason;
  }
}

/** Thrown by a handler: given back unhandled, at once and without counting an attempt. */
export class Defer extends Error {
  override readonly name = "Defer";

  constructor() {
    super("deferred");
  }
}

export type OutcomeName = "ok" | "retry" | "reject" | "defer";

/** How a handler ended: undefined is success, else what it threw. */
export type Outcome = undefined | Error;

/** Anything can be thrown; an outcome is an Error. */
export function outcomeOf(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(textOf(thrown));
}

/** `ok`, `reject`, `defer`, or `retry` for every other error. */
export function outcomeName(outcome: Outcome): OutcomeName {
  if (outcome === undefined) return "ok";
  if (outcome instanceof Reject) return "reject";
  return outcome instanceof Defer ? "defer" : "retry";
}

/** Whether it was meant as an outcome, and is not an accident of the handler's. */
export function isIntended(outcome: Error): boolean {
  return outcome instanceof Retry || outcome instanceof Reject || outcome instanceof Defer;
}
