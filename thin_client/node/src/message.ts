/** One message delivered to the application. */

import { nowMs } from "./clock.js";
import { Defer, type Outcome, outcomeOf, Reject, Retry } from "./outcome.js";
import { textOf } from "./errors.js";

/** The W3C trace context of a message. */
export interface TraceContext {
  traceparent?: string;
  tracestate?: string;
}

/** The owner of a delivered message. */
export interface Holder {
  readonly signal: AbortSignal;
  /** Absent: the message belongs to a handler, whose end settles it. */
  settle?(message: Message, outcome: Outcome): void;
}

/** One message of a pull's answer, with the name and time of its lease. */
export interface Delivered {
  topic: string;
  queue: string;
  offset: number;
  body: Buffer;
  key: string | null;
  orderKey: Buffer | null;
  tag: string | null;
  properties: Readonly<Record<string, string>>;
  attempt: number;
  bornAtMs: number | null;
  messageId: string | null;
  leaseId: number;
  deadlineMs: number;
}

/** One delivery of one message. */
export class Message {
  readonly topic: string;
  /** The queue and its ownership period, for example `broker-a_3#1`; opaque. */
  readonly queue: string;
  /** Position in the queue, in messages. */
  readonly offset: number;
  readonly body: Buffer;
  /** The producer's message key; null if absent. */
  readonly key: string | null;
  /** The order key's value as bytes; null if unordered. */
  readonly orderKeyBytes: Buffer | null;
  readonly tag: string | null;
  readonly properties: Readonly<Record<string, string>>;
  /** Counts deliveries, 1 for the first. */
  readonly attempt: number;
  /** Unique, and the same over redeliveries and the producer's retries: for deduplication. */
  readonly messageId: string | null;
  readonly leaseId: number;
  /** True once the message may be delivered to another client: stop if you can. See `signal`. */
  leaseLost = false;
  /** When the lease expires unless extended, on the library's clock. @internal */
  deadlineMs: number;
  readonly #bornAtMs: number | null;
  #holder: Holder | null = null;

  /** @internal */
  constructor(delivered: Delivered) {
    this.topic = delivered.topic;
    this.queue = delivered.queue;
    this.offset = delivered.offset;
    this.body = delivered.body;
    this.key = delivered.key;
    this.orderKeyBytes = delivered.orderKey;
    this.tag = delivered.tag;
    this.properties = delivered.properties;
    this.attempt = delivered.attempt;
    this.#bornAtMs = delivered.bornAtMs;
    this.messageId = delivered.messageId;
    this.leaseId = delivered.leaseId;
    this.deadlineMs = delivered.deadlineMs;
  }

  toString(): string {
    return `${this.topic}/${this.queue} at offset ${this.offset} (attempt ${this.attempt})`;
  }

  /** `orderKeyBytes` as text. */
  get orderKey(): string | null {
    return this.orderKeyBytes === null ? null : this.orderKeyBytes.toString();
  }

  /** The producer's timestamp; null if unknown. */
  get bornAt(): Date | null {
    return this.#bornAtMs === null ? null : new Date(this.#bornAtMs);
  }

  /** Milliseconds until the lease expires unless extended; negative if expired. */
  get msLeft(): number {
    return this.deadlineMs - nowMs();
  }

  /** When the lease expires unless extended, by the wall clock. */
  get deadline(): Date {
    return new Date(Date.now() + this.msLeft);
  }

  /** The producer's trace context; empty if absent. */
  get trace(): TraceContext {
    const { traceparent, tracestate } = this.properties as TraceContext;
    return {
      ...(traceparent === undefined ? {} : { traceparent }),
      ...(tracestate === undefined ? {} : { tracestate }),
    };
  }

  /** Aborts when the lease is lost or the drain times out. */
  get signal(): AbortSignal {
    return this.#holder?.signal ?? NEVER;
  }

  /** The body as text. */
  text(): string {
    return this.body.toString();
  }

  /** The body, parsed as JSON. Throws a SyntaxError that names the message if it is invalid. */
  json<T = unknown>(): T {
    try {
      return JSON.parse(this.text()) as T;
    } catch (error) {
      throw new SyntaxError(`the body of ${this} is not JSON: ${textOf(error)}`);
    }
  }

  /** For messages of an iterator: ack. */
  ok(): void {
    this.#settle(undefined);
  }

  /** For messages of an iterator: redeliver, by default after the group's next retry interval. */
  retry(options: { afterMs?: number } = {}): void {
    this.#settle(new Retry(options));
  }

  /**
   * For messages of an iterator: as if a handler had thrown `error`, including Retry, Reject,
   * Defer.
   */
  fail(error: unknown): void {
    this.#settle(outcomeOf(error));
  }

  /** For messages of an iterator: no retry will help. */
  reject(reason: unknown = ""): void {
    this.#settle(new Reject(reason));
  }

  /** For messages of an iterator: release unhandled, without counting an attempt. */
  defer(): void {
    this.#settle(new Defer());
  }

  /** Set the current holder; null: none. @internal */
  hold(holder: Holder | null): void {
    this.#holder = holder;
  }

  #settle(outcome: Outcome): void {
    if (this.#holder?.settle === undefined) {
      throw new Error(`${this} cannot be settled: already settled, or owned by a handler`);
    }
    this.#holder.settle(this, outcome);
  }
}

const NEVER = new AbortController().signal;
