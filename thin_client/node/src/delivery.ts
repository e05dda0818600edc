/** Delivers messages to a proxy, and decides on retries. No I/O, except logging. */

import { type ClientError, SendFailed, type SendFailure } from "./errors.js";
import type { Method, Methods, SendResult } from "./idl.js";
import type { Logger } from "./logger.js";
import type { Sendable } from "./outgoing.js";
import { backoffMs, isNews } from "./retries.js";

/** The part of a request that a batch fills. */
const BATCH_BYTES = 2_000_000;
/** Limit of one try; after that the next one begins. */
const TRY_MS = 3_000;
/** Extra time for the proxy's own answer. */
const ANSWER_MS = 500;

/**
 * Codes after which the same message is resent under the same id: unknown error, timeout, too fast,
 * shutting down, behind one that failed. After the first two the message may or may not have been
 * stored.
 */
const AGAIN = new Set([10, 12, 15, 20, 70]);
const UNKNOWN = new Set([10, 12]);
/**
 * Codes after which no message of a batch was stored, if they come without results of the messages:
 * illegal, too fast, no token.
 */
const REFUSED = new Set([11, 15, 71]);

/** One try. */
type Try = {
  [M in Method]: { method: M; takes: Methods[M]["takes"]; timeoutMs: number };
}["sendSync" | "sendBatchSync" | "sendDelaySync"];

/** The messages of one request, tried until `deadlineMs`. Stored ones are not sent again. */
export class Delivery {
  readonly #stored = new Set<Sendable>();
  readonly #doubtful = new Set<Sendable>(); // may be stored
  #failures = 0;

  constructor(
    readonly messages: readonly Sendable[],
    readonly deadlineMs: number,
    private readonly logger: Logger,
  ) {}

  /** The next try. */
  next(nowMs: number): Try {
    const tryMs = Math.max(Math.min(this.deadlineMs - nowMs, TRY_MS), 1);
    const timeoutMs = tryMs + ANSWER_MS;
    const open = this.open();
    const [first] = open as [Sendable];
    if (open.length > 1) {
      return { method: "sendBatchSync", takes: [open.map((each) => each.wire)], timeoutMs };
    }
    const limit = Math.floor(tryMs);
    if (first.delay !== null) {
      return { method: "sendDelaySync", takes: [first.delay, limit], timeoutMs };
    }
    return { method: "sendSync", takes: [first.wire, limit], timeoutMs };
  }

  /** null if all is stored, else the wait before the next try. Throws SendFailed. */
  pauseAfter(result: SendResult, nowMs: number, jitter: number): number | null {
    const sent = this.open();
    if (result.code === 0) {
      for (const each of sent) this.#stored.add(each);
      return null;
    }
    const code = result.code ?? -1;
    let reason = result.msg || "no reason given";
    let outcomes = result.messages ?? [];
    if (outcomes.length !== sent.length) {
      // A batch may be stored in part, unless it was refused whole.
      const known = sent.length === 1 || REFUSED.has(code);
      outcomes = sent.map(() => ({ code: known ? code : 10, msg: reason }));
    }
    const failures = new Map<Sendable, SendFailure>();
    let final: number | null = null;
    sent.forEach((each, place) => {
      const outcome = outcomes[place]!;
      const number = outcome.code ?? -1;
      if (number === 0) {
        this.#stored.add(each);
        return;
      }
      if (UNKNOWN.has(number)) this.#doubtful.add(each);
      if (!AGAIN.has(number)) final ??= number;
      reason = outcome.msg || reason; // absent: same as the previous one
      failures.set(each, this.#failure(each, reason, number));
    });
    if (failures.size === 0) return null;
    return this.#pause(failures, final ?? code, final === null && AGAIN.has(code), nowMs, jitter);
  }

  /** The wait before the next try; `sent`: the request may have arrived. Throws SendFailed. */
  pauseAfterError(error: ClientError, sent: boolean, nowMs: number, jitter: number): number {
    const open = this.open();
    if (sent) for (const each of open) this.#doubtful.add(each);
    const failures = new Map(open.map((each) => [each, this.#failure(each, error.message, null)]));
    return this.#pause(failures, null, error.retriable, nowMs, jitter);
  }

  /** Messages not known to be stored. */
  open(): Sendable[] {
    return this.messages.filter((each) => !this.#stored.has(each));
  }

  /** The order keys of those messages. */
  keys(): string[] {
    return this.open().flatMap(({ order }) => (order === null ? [] : [order]));
  }

  /** The error for a delivery that was never tried. */
  notSent(why: string): SendFailed {
    return this.#failed(
      new Map(this.open().map((each) => [each, this.#failure(each, why, null)])),
      null,
    );
  }

  #failure(each: Sendable, reason: string, code: number | null): SendFailure {
    return { reason, code, outcomeUnknown: this.#doubtful.has(each) };
  }

  #pause(
    failures: Map<Sendable, SendFailure>,
    code: number | null,
    again: boolean,
    nowMs: number,
    jitter: number,
  ): number {
    this.#failures++;
    const pauseMs = backoffMs(this.#failures, jitter);
    if (!again || nowMs + pauseMs >= this.deadlineMs) throw this.#failed(failures, code);
    if (isNews(this.#failures)) {
      const [[message, { reason }]] = failures as unknown as [[Sendable, SendFailure]];
      const { topic } = message.wire;
      this.logger.warn(`orderlane: sending to ${topic} failed, retrying: ${reason}`);
    }
    return pauseMs;
  }

  #failed(failures: Map<Sendable, SendFailure>, code: number | null): SendFailed {
    const entries = [...failures];
    const [message, { reason }] = entries[0]!;
    const others = entries.length > 1 ? ` and ${entries.length - 1} others` : "";
    const doubt = entries.some(([, each]) => each.outcomeUnknown);
    const end = doubt ? "may have been stored" : "not stored";
    return new SendFailed(
      `sending to ${message.wire.topic} failed: ${reason} (message ${message.id}${others}: ${end})`,
      {
        code,
        failures: new Map(entries.map(([each, failure]) => [each.id, failure])),
        messageIds: this.messages.map((each) => each.id),
      },
    );
  }
}

/** Split messages into requests, in order; a delayed one is alone. */
export function deliveries(
  messages: readonly Sendable[],
  deadlineMs: number,
  logger: Logger,
): Delivery[] {
  const requests: Sendable[][] = [];
  let room = 0;
  for (const each of messages) {
    if (requests.length === 0 || each.bytes > room || each.delay !== null) {
      requests.push([]);
      room = BATCH_BYTES;
    }
    requests.at(-1)!.push(each);
    room = each.delay === null ? room - each.bytes : 0;
  }
  return requests.map((request) => new Delivery(request, deadlineMs, logger));
}
