/** Outcomes of a message. */

import { textOf } from "./errors.js";

/**
 * Thrown by a handler: redeliver the message. Any other error has the same effect, and is logged.
 */
export class Retry extends Error {
  override readonly name = "Retry";
  /** Time until the retry in ms; undefined: the group's next retry interval. Its key waits. */
  readonly afterMs: number | undefined;

  constructor({ afterMs }: { afterMs?: number | undefined } = {}) {
    if (afterMs !== undefined && !(afterMs >= 0)) {
      throw new RangeError(`afterMs is ${afterMs}: expected 0 or more milliseconds`);
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

/** Thrown by a handler: release the message unhandled, at once, without counting an attempt. */
export class Defer extends Error {
  override readonly name = "Defer";

  constructor() {
    super("deferred");
  }
}

export type OutcomeName = "ok" | "retry" | "reject" | "defer";

/** The end of a handler: undefined for success, else the thrown error. */
export type Outcome = undefined | Error;

/** Convert a thrown value of any type to an Error. */
export function outcomeOf(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(textOf(thrown));
}

/** `ok`, `reject`, `defer`, or `retry` for every other error. */
export function outcomeName(outcome: Outcome): OutcomeName {
  if (outcome === undefined) return "ok";
  if (outcome instanceof Reject) return "reject";
  return outcome instanceof Defer ? "defer" : "retry";
}

/** Whether the error is an intended outcome, and not a failure of the handler. */
export function isIntended(outcome: Error): boolean {
  return outcome instanceof Retry || outcome instanceof Reject || outcome instanceof Defer;
}
