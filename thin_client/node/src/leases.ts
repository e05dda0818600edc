/** The messages a client holds, and which of them may go to a handler. Pure. */

import { ProtocolError } from "./errors.js";
import type { Context, LeaseRef, PullResponse, WireMessage } from "./idl.js";
import { Message } from "./message.js";
import { Verdicts } from "./verdicts.js";

/** A proxy that holds leases of this client; modified only by the session. */
export class Home {
  verdicts = new Verdicts();
  extendAtMs: number | null = null;
  retryAtMs = 0;
  failures = 0;
  /** In flight: one settle, or one extend sent at `askedMs` for `askedLengthMs`. */
  settling: Verdicts | null = null;
  extending: Lease[] | null = null;
  askedMs = 0;
  askedLengthMs = 0;

  /** `address`: host:port; null if the proxy did not report it. */
  constructor(readonly address: string | null) {}

  /** True while a settle or extend is in flight. */
  get busy(): boolean {
    return this.settling !== null || this.extending !== null;
  }
}

/** Identifies messages of one order key that arrived together and must be handled in sequence. */
export type Run = object;

/** A handler's hold on one message, or on a batch of one key. */
interface Hand {
  left: number;
}

/** One message, and the data needed to settle it. */
export class Lease {
  /** Its handler; null while it waits. */
  hand: Hand | null = null;
  /** Topic, qid with suffix, lease id: unique among live leases. */
  readonly name: string;
  #askedMs = -Infinity; // of the latest extend

  constructor(
    readonly message: Message,
    readonly context: Context,
    readonly home: Home,
    /** Messages of one key are handled one after the other; null: unordered. */
    readonly key: string | null,
    public lengthMs: number,
    readonly run: Run,
  ) {
    this.name = nameOf(message.topic, message.queue, message.leaseId);
  }

  /**
   * Record that an extend sent at `askedMs` was confirmed. Ignored after a later one: the worker of
   * `keeper.ts` may have sent that while the event loop could not read this answer.
   */
  extended(askedMs: number, lengthMs: number): void {
    if (askedMs < this.#askedMs) return;
    this.#askedMs = askedMs;
    this.lengthMs = lengthMs;
    this.message.deadlineMs = askedMs + lengthMs;
  }

  /** When a third of its length has passed. */
  get extendAtMs(): number {
    return this.message.deadlineMs - (2 * this.lengthMs) / 3;
  }
}

/** All leases of a client: open ones with handlers, ready ones, and chained ones of their keys. */
export class Leases {
  /** Running handlers. */
  open = 0;
  readonly #held = new Map<string, Lease>();
  readonly #opened = new Map<Message, Lease>();
  #ready: Lease[] = [];
  /** Leases behind a ready or open one of their key. */
  #chains = new Map<string, Lease[]>();

  constructor(readonly concurrency: number) {}

  get size(): number {
    return this.#held.size;
  }

  /** Leases that wait only for a handler. */
  get ready(): number {
    return this.#ready.length;
  }

  [Symbol.iterator](): Iterator<Lease> {
    return this.#held.values();
  }

  /** False after it was closed or removed. */
  holds(lease: Lease): boolean {
    return this.#held.get(lease.name) === lease;
  }

  /** Add a new lease; one that is already held is ignored. */
  add(lease: Lease): void {
    if (this.#held.has(lease.name)) return;
    this.#held.set(lease.name, lease);
    const chain = lease.key === null ? undefined : this.#chains.get(lease.key);
    if (chain !== undefined) {
      chain.push(lease);
      return;
    }
    if (lease.key !== null) this.#chains.set(lease.key, []);
    this.#ready.push(lease);
  }

  /** Open the next ready lease that has not expired, and with `wholeRun` the rest of its run. */
  take(nowMs: number, wholeRun: boolean): Message[] {
    if (this.open >= this.concurrency) return [];
    for (let left = this.#ready.length; left > 0; left--) {
      const lease = this.#ready.shift() as Lease;
      if (lease.message.deadlineMs <= nowMs) {
        this.#ready.push(lease); // a different key each, so order does not matter
        continue;
      }
      const hand: Hand = { left: 0 };
      this.open++;
      this.#open(lease, hand);
      const messages = [lease.message];
      const chain = wholeRun && lease.key !== null ? this.#chains.get(lease.key) : undefined;
      for (let next = chain?.[0]; chain !== undefined && next !== undefined; next = chain[0]) {
        if (next.run !== lease.run || next.message.deadlineMs <= nowMs) break;
        chain.shift();
        this.#open(next, hand);
        messages.push(next.message);
      }
      return messages;
    }
    return [];
  }

  #open(lease: Lease, hand: Hand): void {
    lease.hand = hand;
    hand.left++;
    this.#opened.set(lease.message, lease);
  }

  /**
   * Close an open lease; after its hand's last one, the key's next is ready. Throws if not open.
   */
  close(message: Message): Lease {
    const lease = this.#opened.get(message);
    if (lease?.hand == null) {
      throw new Error(`${message.topic}/${message.queue} at ${message.offset}: not with a handler`);
    }
    this.#opened.delete(message);
    this.#held.delete(lease.name);
    lease.hand.left--;
    if (lease.hand.left === 0) {
      this.open--;
      this.#advance(lease.key);
    }
    lease.hand = null;
    return lease;
  }

  /** True if a message of `key` is held; false without a key. */
  has(key: string | null): boolean {
    return key !== null && this.#chains.has(key);
  }

  /** Remove and return the leases behind `message`, which is with a handler, in its run. */
  dropRest(message: Message): Lease[] {
    const lease = this.#opened.get(message);
    const chain = lease?.key == null ? undefined : this.#chains.get(lease.key);
    if (lease?.key == null || chain === undefined) return [];
    const rest = chain.filter((each) => each.run === lease.run);
    if (rest.length > 0) {
      this.#chains.set(
        lease.key,
        chain.filter((each) => each.run !== lease.run),
      );
      for (const each of rest) this.#held.delete(each.name);
    }
    return rest;
  }

  /** Remove a lease that is not open; O(n). */
  drop(lease: Lease): void {
    this.#held.delete(lease.name);
    const place = this.#ready.indexOf(lease);
    if (place >= 0) {
      this.#ready.splice(place, 1);
      this.#advance(lease.key);
    } else if (lease.key !== null) {
      const chain = this.#chains.get(lease.key) ?? [];
      this.#chains.set(
        lease.key,
        chain.filter((each) => each !== lease),
      );
    }
  }

  /** Remove and return all leases that are not open; O(n). */
  dropWaiting(): Lease[] {
    const waiting = [...this.#held.values()].filter((lease) => lease.hand === null);
    for (const lease of waiting) this.#held.delete(lease.name);
    this.#ready = [];
    this.#chains = new Map();
    for (const lease of this.#held.values()) {
      if (lease.key !== null) this.#chains.set(lease.key, []);
    }
    return waiting;
  }

  /** After the first lease of a key is gone, the next one is ready. */
  #advance(key: string | null): void {
    if (key === null) return;
    const next = this.#chains.get(key)?.shift();
    if (next === undefined) this.#chains.delete(key);
    else this.#ready.push(next);
  }
}

/** Read the leases of one queue's batch. Throws ProtocolError if a required field is missing. */
export function readLeases(
  part: PullResponse,
  home: Home,
  { sentMs, lengthMs }: { sentMs: number; lengthMs: number },
): Lease[] {
  const messages = part.messages ?? [];
  if (messages.length === 0) return [];
  const { topic, qid } = part.context ?? {};
  const length = part.leaseMs || lengthMs;
  if (!topic || !qid || !(length > 0) || part.context === null) {
    throw new ProtocolError("the answer to a pull has messages, but no topic, qid or leaseMs");
  }
  const { context } = part;
  const runs = new Map<string, Run>();
  return messages.map((each) => {
    const message = readMessage(each, { topic, queue: qid, deadlineMs: sentMs + length });
    if (message.orderKeyBytes === null) return new Lease(message, context, home, null, length, {});
    const key = `${topic}\0${message.orderKeyBytes.toString("latin1")}`;
    const run = runs.get(key) ?? {};
    runs.set(key, run);
    return new Lease(message, context, home, key, length, run);
  });
}

function readMessage(
  each: WireMessage,
  where: { topic: string; queue: string; deadlineMs: number },
): Message {
  const { leaseId, offset, value } = each;
  if (!Number.isSafeInteger(leaseId) || !Number.isSafeInteger(offset) || value === null) {
    throw new ProtocolError(
      `a message of ${where.topic}/${where.queue} has no body, offset or lease`,
    );
  }
  return new Message({
    topic: where.topic,
    queue: where.queue,
    offset: offset as number,
    body: value,
    key: each.key,
    orderKey: each.orderKey,
    tag: each.tag,
    properties: each.properties ?? NO_PROPERTIES,
    attempt: each.attempt || 1,
    bornAtMs: each.bornAtMs,
    messageId: each.messageId,
    leaseId: leaseId as number,
    deadlineMs: where.deadlineMs,
  });
}

const NO_PROPERTIES: Readonly<Record<string, string>> = Object.freeze({});

/** The name of a lease. */
export function nameOf(topic: string, queue: string, leaseId: number): string {
  return `${topic}\0${queue}\0${leaseId}`;
}

/** The name of the lease in `reference`. */
export function nameIn({ context, leaseId }: LeaseRef): string {
  return nameOf(context?.topic ?? "", context?.qid ?? "", leaseId);
}
