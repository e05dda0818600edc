/** One message in the application's hands. */

import { nowMs } from "./clock.js";
import { Defer, type Outcome, outcomeOf, Reject, Retry } from "./outcome.js";
import { textOf } from "./errors.js";

/** The W3C trace context that came with a message, or is to go with one. */
export interface TraceContext {
  traceparent?: string;
  tracestate?: string;
}

/** Whoever handed the message out. */
export interface Holder {
  readonly signal: AbortSignal;
  /** Absent: the message belongs to a handler, whose end settles it. */
  settle?(message: Message, outcome: Outcome): void;
}

/** What a pull brought, with the name and the time of its lease. */
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
  /** Name of the queue's period of ownership, such as `broker-a_3#1`; opaque. */
  readonly queue: string;
  /** Place in its queue, in messages. */
  readonly offset: number;
  readonly body: Buffer;
  /** The producer's message key; null if it gave none. */
  readonly key: string | null;
  /** The value by which the message keeps its order, as it is; null if it is in no order. */
  readonly orderKeyBytes: Buffer | null;
  readonly tag: string | null;
  readonly properties: Readonly<Record<string, string>>;
  /** Which hand-out this is, 1 for the first. */
  readonly attempt: number;
  /** Unique, the same over redeliveries and a producer's retries: for de-duplication. */
  readonly messageId: string | null;
  readonly leaseId: number;
  /** True once someone else may get the message: stop if you can. `signal` tells it, too. */
  leaseLost = false;
  /** When the lease ends unless extended, on the clock of the library. @internal */
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

  /** When the producer made it; null if unknown. */
  get bornAt(): Date | null {
    return this.#bornAtMs === null ? null : new Date(this.#bornAtMs);
  }

  /** Milliseconds until the lease ends unless extended; negative if that has passed. */
  get msLeft(): number {
    return this.deadlineMs - nowMs();
  }

  /** When the lease ends unless extended, by the wall clock. */
  get deadline(): Date {
    return new Date(Date.now() + this.msLeft);
  }

  /** The producer's trace context; empty if it gave none. */
  get trace(): TraceContext {
    const { traceparent, tracestate } = this.properties as TraceContext;
    return {
      ...(traceparent === undefined ? {} : { traceparent }),
      ...(tracestate === undefined ? {} : { tracestate }),
    };
  }

  /** Aborts when the lease is lost, or the time to drain is up. */
  get signal(): AbortSignal {
    return this.#holder?.signal ?? NEVER;
  }

  /** The body as text. */
  text(): string {
    return this.body.toString();
  }

  /** The body, read as JSON. Throws a SyntaxError that names the message if it is none. */
  json<T = unknown>(): T {
    try {
      return JSON.parse(this.text()) as T;
    } catch (error) {
      throw new SyntaxError(`the body of ${this} is no JSON: ${textOf(error)}`);
    }
  }

  /** Messages of an iterator: this one was handled. */
  ok(): void {
    this.#settle(undefined);
  }

  /**
   * Messages of an iterator: give it to me again, after the group's next retry interval if not
   * said.
   */
  retry(options: { afterMs?: number } = {}): void {
    this.#settle(new Retry(options));
  }

  /** Messages of an iterator: as if a handler had thrown `error`; Retry, Reject and Defer count. */
  fail(error: unknown): void {
    this.#settle(outcomeOf(error));
  }

  /** Messages of an iterator: no retry will help. */
  reject(reason = ""): void {
    this.#settle(new Reject(reason));
  }

  /** Messages of an iterator: given back unhandled, without counting an attempt. */
  defer(): void {
    this.#settle(new Defer());
  }

  /** Who holds it now; null: nobody any more. @internal */
  hold(holder: Holder | null): void {
    this.#holder = holder;
  }

  #settle(outcome: Outcome): void {
    if (this.#holder?.settle === undefined) {
      throw new Error(`${this} cannot be settled: it was before, or belongs to a handler`);
    }
    this.#holder.settle(this, outcome);
  }
}

const NEVER = new AbortController().signal;
