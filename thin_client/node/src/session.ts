/**
 * Decides what a consuming client does next. Pure, and the same in every language.
 *
 * The shell around it owns sockets, timers and the clock. It asks `pullAt` and `controlAt` when
 * something is due, sends what `beginPull` and `beginControl` return, reports the answer or the
 * failure, gives messages from `take` to handlers, and reports their ends to `settle`.
 *
 * Rules; tests name them:
 *
 * S1  A verdict rides on the next pull to the proxy that holds its lease.
 * S2  A verdict waits for the next pull, `ackLingerMs` at most. If it may make a message available
 *     to a pull already waiting at the proxy (no further message of its key is held here), it is
 *     sent at once if no message waits here, and otherwise once that pull has been unanswered for
 *     3 ms. While a settle is in flight, further verdicts accumulate.
 * S3  A verdict is resent until an answer confirms it or its lease must have expired, and never
 *     after that.
 * S4  A lease runs from the moment its pull was *sent*. After it has expired, its message goes to a
 *     handler only if an extend has confirmed it: a stopped proxy's answer may arrive late.
 * S5  A lease is extended after a third of its length, whether its message is handled or waits.
 * S6  At most one handler has messages of an order key, even if the proxy errs.
 * S7  At most `concurrency` handlers have messages, and at most `prefetch` more messages wait here.
 * S8  After `stop` no message goes to a handler: waiting messages and later arrivals are released.
 * S9  A failed pull is repeated under the same id: if its answer was lost, the proxy sends it
 * again.
 *     Its leases run from the *first* sending. Once they must have expired, the next pull has a new
 *     id.
 * S10 Messages of one order key that arrive together form a run: when one fails, those behind it
 *     are released with its verdict.
 */

import { MAX_I32 } from "./arguments.js";
import type {
  AckAnswer,
  AckRequest,
  ExtendRequest,
  LeaseRef,
  PullRequest,
  PullResponse,
} from "./idl.js";
import { Home, type Lease, Leases, nameIn, readLeases } from "./leases.js";
import type { Message } from "./message.js";
import { Defer, type Outcome } from "./outcome.js";
import { backoffMs } from "./retries.js";
import { Verdicts } from "./verdicts.js";

/**
 * Limits of a pull's wait. It waits for a quarter of the lease, so that its messages have most of
 * their lease left (S4), and for the first linger before the first lease.
 */
const MIN_LINGER_MS = 20;
const FIRST_LINGER_MS = 1_000;
const MAX_LINGER_MS = 10_000;
/** Pause after an empty answer that came before the pull's wait was over: the proxy is stopping. */
const EARLY_PAUSE_MS = 50;
/** A proxy with messages answers a pull within this; without messages it lets the pull wait. */
const ANSWER_DUE_MS = 3;

/** Options of a session. */
export interface SessionOptions {
  group: string;
  /** null: all topics of the group. */
  topics: readonly string[] | null;
  clientId: string;
  version: string;
  token: string | null;
  /** Maximum number of handlers with messages. */
  concurrency: number;
  /** Maximum number of messages buffered beyond those. */
  prefetch: number;
  ackLingerMs: number;
  /** Maximum number of consecutive messages of an order key in one delivery. */
  maxRun: number;
  /** Makes pull ids unique: successive processes may share a client id. */
  requestPrefix: string;
}

export type Control =
  { method: "settle"; request: AckRequest } | { method: "extend"; request: ExtendRequest };

/** An answered extend. Leases by name: those still held, and those refused. */
export interface Kept {
  readonly askedMs: number;
  readonly lengthMs: number;
  readonly held: ReadonlySet<string>;
  readonly refused: ReadonlySet<string>;
}

interface Pull {
  requestId: string;
  firstSentMs: number; // under this id
  sentMs: number;
  lingerMs: number;
  verdicts: Verdicts;
  home: Home | null; // home of these verdicts
}

/** The state of one consumer; all times in ms. */
export class Session {
  /** Proxies that hold our leases or await verdicts, by address. */
  readonly homes = new Map<string | null, Home>();
  stopping = false;
  pullFailures = 0; // consecutive
  readonly #leases: Leases;
  readonly #capacity: number;
  readonly #lowWater: number;
  #pull: Pull | null = null;
  #failedPull: Pull | null = null; // to be repeated
  #pulls = 0; // ids used so far
  #leaseMs: number | null = null; // the longest of the most recent leases; null: no lease yet
  #pullHome: Home | null = null; // the pull connection's proxy, if known
  #pullRetryAtMs = 0;
  #lingerMs = FIRST_LINGER_MS;

  constructor(readonly options: SessionOptions) {
    this.#leases = new Leases(options.concurrency);
    this.#capacity = Math.min(options.concurrency + options.prefetch, MAX_I32);
    this.#lowWater = Math.max(1, Math.floor((options.prefetch + 1) / 2));
  }

  /** The longest of the most recent leases; null before the first. */
  get leaseMs(): number | null {
    return this.#leaseMs;
  }

  /** Whether leases are held, or verdicts are unconfirmed. */
  get holdsAny(): boolean {
    return this.#leases.size > 0 || !this.flushed;
  }

  /** Leases to keep alive: those held, and those with verdicts to be sent or in flight. */
  *toKeep(): Iterable<LeaseRef & { home: Home }> {
    for (const { home, context, message } of this.#leases) {
      if (!message.leaseLost) yield { home, context, leaseId: message.leaseId };
    }
    for (const [home, verdicts] of this.#unconfirmed()) {
      for (const each of verdicts.references()) yield { home, ...each };
    }
  }

  toString(): string {
    const { open, ready, size } = this.#leases;
    const pulling = this.#pull !== null;
    return (
      `Session ${this.options.group} open=${open} ready=${ready} held=${size}` +
      ` pulling=${pulling} homes=${this.homes.size}`
    );
  }

  // ---- messages and handlers --------------------------------------------------------------------

  /** Running handlers. */
  get open(): number {
    return this.#leases.open;
  }

  /** True if `take` may return a message now; it may return none while expired leases wait. */
  get takeable(): boolean {
    return this.#leases.ready > 0 && this.#leases.open < this.#leases.concurrency;
  }

  /** True if nothing is in flight or waiting to be sent. */
  get flushed(): boolean {
    if (this.#pull !== null) return false;
    for (const home of this.homes.values()) if (home.busy || !home.verdicts.isEmpty) return false;
    return true;
  }

  /** True if, in addition, no lease is held. */
  get drained(): boolean {
    return this.#leases.size === 0 && this.flushed;
  }

  /** Return the next message for a handler, or undefined (S4, S6, S7). */
  take(nowMs: number): Message | undefined {
    return this.#leases.take(nowMs, false)[0];
  }

  /** Return the next message and the rest of its run for one handler; possibly empty. */
  takeRun(nowMs: number): Message[] {
    return this.#leases.take(nowMs, true);
  }

  /** End the handling of `message`. Throws if no handler had it. */
  settle(message: Message, outcome: Outcome, nowMs: number): void {
    this.settleRun([message], outcome === undefined ? 1 : 0, outcome, nowMs);
  }

  /**
   * End the handling of a run: the first `done` messages are handled, `outcome` applies to the next
   * one, and those behind it were not handled.
   */
  settleRun(messages: readonly Message[], done: number, outcome: Outcome, nowMs: number): void {
    const failed = done < messages.length;
    const rest = failed && messages[0] ? this.#leases.dropRest(messages[0]) : [];
    const leases = messages.map((message) => this.#leases.close(message));
    leases.forEach((lease, place) => {
      const hurry = failed || !this.#leases.has(lease.key);
      const verdict = place < done ? undefined : place > done ? new Defer() : outcome;
      this.#judge(lease, verdict, nowMs, hurry);
    });
    for (const lease of rest) this.#judge(lease, new Defer(), nowMs, true);
  }

  /** Stop pulling, and release waiting messages (S8). */
  stop(nowMs: number): void {
    this.stopping = true;
    for (const lease of this.#leases.dropWaiting()) this.#judge(lease, new Defer(), nowMs, true);
  }

  #judge({ home, context, message }: Lease, outcome: Outcome, nowMs: number, hurry: boolean): void {
    const { deadlineMs } = message;
    home.verdicts.add(context, message.leaseId, outcome, { deadlineMs, nowMs });
    home.verdicts.hurry ||= hurry;
  }

  // ---- pulling ----------------------------------------------------------------------------------

  /** When the next pull is due; null if none is. */
  pullAt(): number | null {
    const busy = this.stopping || this.#pull !== null;
    const full = this.#leases.ready >= this.#lowWater || this.#leases.size >= this.#capacity;
    return busy || full ? null : this.#pullRetryAtMs;
  }

  /** The pull to send now, including verdicts (S1). An answer or a failure must follow. */
  beginPull(nowMs: number): PullRequest {
    const { group, topics, maxRun, version, clientId, token } = this.options;
    const home = this.#pullHome ?? this.homes.get(null) ?? null;
    let verdicts = new Verdicts();
    if (home !== null) [verdicts, home.verdicts] = [home.verdicts, verdicts];
    const [requestId, firstSentMs] = this.#nextId(nowMs);
    const lingerMs = this.#lingerMs;
    this.#pull = { requestId, firstSentMs, sentMs: nowMs, lingerMs, verdicts, home };
    return {
      groupId: group,
      topics: topics === null ? null : [...topics],
      maxBatchSize: this.#capacity - this.#leases.size,
      maxLingerTime: Math.floor(lingerMs),
      version,
      acks: verdicts.isEmpty ? null : verdicts.batches(),
      requestId,
      clientId,
      maxRun: maxRun > 1 ? maxRun : null,
      manyQueues: true,
      token,
    };
  }

  /** The id of the pull that begins now, and when that id was first sent (S9). */
  #nextId(nowMs: number): [string, number] {
    const failed = this.#failedPull;
    this.#failedPull = null;
    if (failed !== null) {
      const { requestId, firstSentMs, lingerMs } = failed;
      const over = this.#leaseMs !== null && nowMs >= firstSentMs + lingerMs + this.#leaseMs;
      if (!over) return [requestId, firstSentMs];
    }
    this.#pulls++;
    return [`${this.options.requestPrefix}${this.#pulls}`, nowMs];
  }

  /**
   * Add the messages; returns their number. Throws ProtocolError for a malformed answer; then
   * nothing has changed, and `pullFailed` must follow.
   */
  pullAnswered(response: PullResponse, nowMs: number): number {
    const pull = this.#pull as Pull;
    const parts = [response, ...(response.more ?? [])];
    const address = parts.find((part) => part.home)?.home ?? null;
    const home = this.homes.get(address) ?? new Home(address);
    const lengths = { sentMs: pull.firstSentMs, lengthMs: response.leaseMs ?? 0 };
    const arrived = parts.flatMap((part) => readLeases(part, home, lengths));
    this.#pull = null;
    this.pullFailures = 0;
    if (arrived.length > 0) {
      this.homes.set(address, home);
      this.#pullHome = home;
      let [shortest, longest] = [Infinity, 0];
      for (const { lengthMs } of arrived) {
        shortest = Math.min(shortest, lengthMs);
        longest = Math.max(longest, lengthMs);
      }
      this.#leaseMs = longest;
      this.#lingerMs = Math.min(Math.max(shortest / 4, MIN_LINGER_MS), MAX_LINGER_MS);
    } else if (nowMs - pull.sentMs < pull.lingerMs / 2) {
      this.#pullRetryAtMs = nowMs + EARLY_PAUSE_MS;
    }
    for (const lease of arrived) {
      if (this.stopping) {
        this.#judge(lease, new Defer(), nowMs, true);
      } else {
        this.#leases.add(lease);
        planExtend(lease);
      }
    }
    this.#forgetIdleHomes();
    return arrived.length;
  }

  /** Record that the connection of pulls ended between two of them: the next may lead elsewhere. */
  pullsReconnect(): void {
    this.#pullHome = null;
  }

  /**
   * Handle a pull that had no answer, a bad one, or no connection; its verdicts are resent (S3).
   */
  pullFailed(nowMs: number, jitter: number): void {
    const pull = this.#pull;
    this.#pull = null;
    if (pull !== null) {
      this.#failedPull = pull;
      pull.home?.verdicts.absorb(pull.verdicts);
    }
    this.pullsReconnect();
    this.pullFailures++;
    this.#pullRetryAtMs = nowMs + backoffMs(this.pullFailures, jitter);
  }

  // ---- settling and extending -------------------------------------------------------------------

  /** When a settle or extend is due at `home` (S2, S5); null if none is. */
  controlAt(home: Home): number | null {
    if (home.busy) return null;
    const flushAt = this.#flushAt(home);
    if (flushAt === null && home.extendAtMs === null) return null;
    return Math.max(Math.min(flushAt ?? Infinity, home.extendAtMs ?? Infinity), home.retryAtMs);
  }

  /** The request to send to `home` now, if any. An answer or a failure must follow. */
  beginControl(home: Home, nowMs: number): Control | null {
    if (home.extendAtMs !== null && home.extendAtMs <= nowMs) {
      const dueMs = this.#planExtends(home); // the lease that set the time may be gone
      if (dueMs !== null && dueMs <= nowMs) return this.#beginExtend(home, nowMs);
    }
    const flushAt = this.#flushAt(home);
    if (flushAt === null || flushAt > nowMs) return null;
    home.settling = home.verdicts;
    home.verdicts = new Verdicts();
    const { group: groupId, clientId, token } = this.options;
    const acks = home.settling.batches();
    return { method: "settle", request: { groupId, acks, clientId, token } };
  }

  /** Handle the answer; returns messages with handlers whose lease is lost. */
  controlAnswered(home: Home, answer: AckAnswer): Message[] {
    const extended = home.extending;
    home.extending = home.settling = null;
    home.failures = home.retryAtMs = 0;
    const lost: Message[] = [];
    if (extended !== null) {
      const refused = new Set((answer.notHeld ?? []).map(nameIn));
      for (const lease of extended) {
        if (refused.has(lease.name)) {
          if (this.#lose(lease)) lost.push(lease.message);
        } else {
          lease.extended(home.askedMs, home.askedLengthMs);
        }
      }
      this.#planExtends(home);
    }
    this.#forgetIdleHomes();
    return lost;
  }

  /**
   * Handle a missing answer: everything is resent (S3). Returns messages with handlers whose lease
   * has expired without an answer from the proxy.
   */
  controlFailed(home: Home, nowMs: number, jitter: number): Message[] {
    if (home.settling !== null) home.verdicts.absorb(home.settling);
    home.settling = home.extending = null;
    home.failures++;
    home.retryAtMs = nowMs + backoffMs(home.failures, jitter);
    if (home.verdicts.usefulUntilMs <= nowMs) home.verdicts = new Verdicts();
    const late = this.#leasesOf(home).filter((each) => each.message.deadlineMs <= nowMs);
    const lost = late.filter((lease) => this.#lose(lease)).map((lease) => lease.message);
    this.#planExtends(home);
    this.#forgetIdleHomes();
    return lost;
  }

  /**
   * Record the answer to an extend that was sent in place of `beginControl`'s while the event loop
   * was blocked; returns messages with handlers whose lease is lost.
   */
  keptMeanwhile({ askedMs, lengthMs, held, refused }: Kept): Message[] {
    const lost: Message[] = [];
    for (const lease of [...this.#leases]) {
      if (refused.has(lease.name)) {
        if (this.#lose(lease)) lost.push(lease.message);
      } else if (held.has(lease.name)) {
        // The proxy caps a longer time silently.
        lease.extended(askedMs, Math.min(lengthMs, lease.lengthMs));
      }
    }
    for (const [, verdicts] of this.#unconfirmed()) {
      const references = [...verdicts.references()];
      if (references.some((each) => held.has(nameIn(each)))) verdicts.keepUntil(askedMs + lengthMs);
    }
    return lost;
  }

  /** Verdicts to be sent or in flight, with their homes. */
  *#unconfirmed(): Iterable<[Home, Verdicts]> {
    for (const home of this.homes.values()) {
      yield [home, home.verdicts];
      if (home.settling !== null) yield [home, home.settling];
    }
    const pull = this.#pull;
    if (pull !== null && pull.home !== null) yield [pull.home, pull.verdicts];
  }

  #flushAt({ verdicts: { sinceMs, hurry } }: Home): number | null {
    if (sinceMs === null) return null;
    const pull = hurry ? this.#pull : null;
    if (this.stopping || (pull !== null && this.#leases.ready === 0)) return sinceMs;
    const last = sinceMs + this.options.ackLingerMs;
    return pull === null ? last : Math.min(last, Math.max(sinceMs, pull.sentMs + ANSWER_DUE_MS));
  }

  #beginExtend(home: Home, nowMs: number): Control {
    const { group: groupId, clientId, token } = this.options;
    home.extending = this.#leasesOf(home);
    home.askedMs = nowMs;
    // With several lengths, use the shortest: the proxy caps a longer one silently.
    home.askedLengthMs = home.extending.reduce(
      (ms, { lengthMs }) => Math.min(ms, lengthMs),
      MAX_I32,
    );
    const leases = home.extending.map(({ context, message: { leaseId } }) => ({
      context,
      leaseId,
    }));
    const ms = Math.floor(home.askedLengthMs);
    return { method: "extend", request: { groupId, leases, ms, clientId, token } };
  }

  /** The leases to extend at `home`; O(n). */
  #leasesOf(home: Home): Lease[] {
    return [...this.#leases].filter((each) => each.home === home && !each.message.leaseLost);
  }

  #planExtends(home: Home): number | null {
    home.extendAtMs = null;
    for (const lease of this.#leasesOf(home)) planExtend(lease);
    return home.extendAtMs;
  }

  /** True if its message is with a handler, which does not know of it yet. */
  #lose(lease: Lease): boolean {
    if (!this.#leases.holds(lease) || lease.message.leaseLost) return false;
    if (lease.hand === null) {
      this.#leases.drop(lease);
      return false;
    }
    return (lease.message.leaseLost = true);
  }

  #forgetIdleHomes(): void {
    if (this.homes.size < 2) return;
    const inUse = new Set<Home | null | undefined>([this.#pullHome, this.#pull?.home]);
    for (const lease of this.#leases) inUse.add(lease.home);
    for (const home of [...this.homes.values()]) {
      if (!inUse.has(home) && !home.busy && home.verdicts.isEmpty) this.homes.delete(home.address);
    }
  }
}

function planExtend({ home, extendAtMs }: Lease): void {
  if (home.extendAtMs === null || extendAtMs < home.extendAtMs) home.extendAtMs = extendAtMs;
}
