/** Outcomes of a message. */

import { checkMs, checkProperties, type Names } from "./arguments.js";
import { textOf } from "./errors.js";

interface RetryOptions {
  afterMs?: number | undefined;
}

const RETRY_OPTIONS: Names<RetryOptions> = { afterMs: true };

/**
 * Thrown by a handler: redeliver the message. Any other error has the same effect, and is logged.
 */
export class Retry extends Error {
  override readonly name = "Retry";
  /** Time until the retry in ms; undefined: the group's next retry interval. Its key waits. */
  readonly afterMs: number | undefined;

  constructor(options: { afterMs?: number | undefined } = {}) {
    checkProperties("the options of a retry", options, RETRY_OPTIONS, "{ afterMs: 5000 }");
    const { afterMs } = options;
    if (afterMs !== undefined) checkMs("afterMs", afterMs, { most: Infinity });
    super(afterMs === undefined ? "retry" : `retry after ${afterMs} ms`);
    this.afterMs = afterMs;
  }
}

/** Thrown by a handler: no retry will help; the group's failure policy applies at once. */
export class Reject extends Error {
  override readonly name = "Reject";
  readonly reason: string;

  /** `reason` is shown to operators: a text, or an error, whose text is taken. */
  constructor(reason: unknown = "") {
    const text = reason === null ? "" : textOf(reason);
    super(text || "rejected");
    this.reason = text;
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

/** Convert a thrown value of any type to an Error. Never throws. */
export function outcomeOf(thrown: unknown): Error {
  try {
    if (thrown instanceof Error) return thrown;
  } catch {
    // a revoked proxy, for example
  }
  return new Error(textOf(thrown));
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
