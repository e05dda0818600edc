/** The messages a client holds: which may go to a handler. Pure. */

import { ProtocolError } from "./errors.js";
import type { Context, LeaseRef, PullResponse, WireMessage } from "./idl.js";
import { Message } from "./message.js";
import { Verdicts } from "./verdicts.js";

/** One proxy that holds leases of ours; written by the session alone. */
export class Home {
  verdicts = new Verdicts();
  extendAtMs: number | null = null;
  retryAtMs = 0;
  failures = 0;
  /** What is under way: one settle, or one extend asked at `askedMs` for `askedLengthMs`. */
  settling: Verdicts | null = null;
  extending: Lease[] | null = null;
  askedMs = 0;
  askedLengthMs = 0;

  /** `address`: host:port; null if the proxy did not say. */
  constructor(readonly address: string | null) {}

  /** True while a settle or extend is under way. */
  get busy(): boolean {
    return this.settling !== null || this.extending !== null;
  }
}

/** What came together of one order key, and has to be handled in sequence. */
export type Run = object;

/** One handler's hold on one message, or on a batch of one key. */
interface Hand {
  left: number;
}

/** One message with what its proxy has to be told to settle it. */
export class Lease {
  /** The handler that has it; null while it waits. */
  hand: Hand | null = null;
  /** Topic, qid with suffix, lease id: unique among the leases that are alive. */
  readonly name: string;

  constructor(
    readonly message: Message,
    readonly context: Context,
    readonly home: Home,
    /** Messages of one key are handled one after the other; null: in no order. */
    readonly key: string | null,
    public lengthMs: number,
    readonly run: Run,
  ) {
    this.name = nameOf(message.topic, message.queue, message.leaseId);
  }

  /** When a third of its length is gone. */
  get extendAtMs(): number {
    return this.message.deadlineMs - (2 * this.lengthMs) / 3;
  }
}

/** All leases of a client: open ones with handlers, ready ones, and those behind their key's. */
export class Leases {
  /** Handlers at work. */
  open = 0;
  readonly #held = new Map<string, Lease>();
  readonly #opened = new Map<Message, Lease>();
  #ready: Lease[] = [];
  /** By key with a lease ready or open: those that wait behind it. */
  #chains = new Map<string, Lease[]>();

  constructor(readonly concurrency: number) {}

  get size(): number {
    return this.#held.size;
  }

  /** Leases that wait for nothing but a handler. */
  get ready(): number {
    return this.#ready.length;
  }

  [Symbol.iterator](): Iterator<Lease> {
    return this.#held.values();
  }

  /** False once it was closed or removed. */
  holds(lease: Lease): boolean {
    return this.#held.get(lease.name) === lease;
  }

  /** Take a new lease in; one that is held already is ignored. */
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

  /** Open the next ready lease that has not run out, with those of its run if `wholeRun`. */
  take(nowMs: number, wholeRun: boolean): Message[] {
    if (this.open >= this.concurrency) return [];
    for (let left = this.#ready.length; left > 0; left--) {
      const lease = this.#ready.shift() as Lease;
      if (lease.message.deadlineMs <= nowMs) {
        this.#ready.push(lease); // other keys', so their order does not matter
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

  /** End an open lease; with its hand's last one its key's next gets ready. Throws if not open. */
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

  /** True if a message of `key` is here; false without a key. */
  has(key: string | null): boolean {
    return key !== null && this.#chains.has(key);
  }

  /** Forget and return what waits behind `message`, which is with a handler, in its run. */
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

  /** Forget a lease that is not open; O(n). */
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

  /** Forget and return all that are not open; O(n). */
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

  /** The key's first is gone: its next one waits for nothing but a handler. */
  #advance(key: string | null): void {
    if (key === null) return;
    const next = this.#chains.get(key)?.shift();
    if (next === undefined) this.#chains.delete(key);
    else this.#ready.push(next);
  }
}

/** The leases of one queue's batch. Throws ProtocolError if it lacks what a lease needs. */
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
    throw new ProtocolError("a pull was answered with messages, but without topic, qid or leaseMs");
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
      `a message of ${where.topic}/${where.queue} came without body, offset or lease`,
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

/** How a lease is called. */
export function nameOf(topic: string, queue: string, leaseId: number): string {
  return `${topic}\0${queue}\0${leaseId}`;
}

/** The lease that `reference` names. */
export function nameIn({ context, leaseId }: LeaseRef): string {
  return nameOf(context?.topic ?? "", context?.qid ?? "", leaseId);
}
