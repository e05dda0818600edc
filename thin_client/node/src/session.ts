/**
 * What a consuming client does next: pure, the same in every language.
 *
 * The shell around it owns sockets, timers and the clock. It asks `pullAt` and `controlAt` when
 * something is due, sends what `beginPull` and `beginControl` return, reports the answer or the
 * failure, gives messages from `take` to handlers, and reports their ends to `settle`.
 *
 * Rules; tests name them:
 *
 * S1  A verdict rides on the next pull to the proxy that holds its lease.
 * S2  A verdict waits for the next pull, `ackLingerMs` at most. But what it releases may be just
 *     what a pull at the proxy waits for: it is sent at once if no message waits here meanwhile,
 *     and otherwise once that pull has not been answered for 3 ms. (One whose key goes on here
 *     releases nothing.) While some are under way others gather.
 * S3  A verdict is sent again until an answer confirms it or its lease cannot be alive, and never
 *     after that.
 * S4  A lease runs from the moment its pull was *sent*. A message whose lease has run out goes to a
 *     handler only after an extend has confirmed it: a stopped proxy's answer may come late.
 * S5  With a third of its length gone a lease is extended, whether its message is handled or waits.
 * S6  Of one order key at most one handler is at work, even if the proxy erred.
 * S7  At most `concurrency` handlers are at work, and `prefetch` more messages wait here.
 * S8  After `stop` no message goes to a handler: what waits, and what still arrives, is given back.
 * S9  A pull that failed is repeated under the same id: its answer may be lost, and its proxy gives
 *     it again. Its leases run from the *first* sending. After that the id is a new one.
 * S10 What came together of one order key is a run: at the first of it that does not end well,
 *     those behind it are given back with the verdict.
 */

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
 * How long a pull may wait: a quarter of the lease, so that what it brings has most of its lease
 * left (S4); and before any lease was seen.
 */
const MIN_LINGER_MS = 20;
const FIRST_LINGER_MS = 1_000;
const MAX_LINGER_MS = 10_000;
/** Pause after an answer that is empty although its pull could have waited: a proxy that stops. */
const EARLY_PAUSE_MS = 50;
/** A proxy that has messages answers a pull within this; one that does not lets the pull wait. */
const ANSWER_DUE_MS = 3;

/** What a session is told once. */
export interface SessionOptions {
  group: string;
  /** null: any topic of the group. */
  topics: readonly string[] | null;
  clientId: string;
  version: string;
  token: string | null;
  /** Handlers at work at most. */
  concurrency: number;
  /** Messages that wait here beside them at most. */
  prefetch: number;
  ackLingerMs: number;
  /** Consecutive messages of an order key that may come together. */
  maxRun: number;
  /** Makes the ids of pulls unique: processes may share a client id, one after the other. */
  requestPrefix: string;
}

export type Control =
  { method: "settle"; request: AckRequest } | { method: "extend"; request: ExtendRequest };

interface Pull {
  requestId: string;
  firstSentMs: number; // under this id
  sentMs: number;
  lingerMs: number;
  verdicts: Verdicts;
  home: Home | null; // whose verdicts these are
}

/** One consumer's state; all times in ms. */
export class Session {
  /** Proxies that hold leases of ours or wait for verdicts, by address. */
  readonly homes = new Map<string | null, Home>();
  stopping = false;
  pullFailures = 0; // in a row
  readonly #leases: Leases;
  readonly #capacity: number;
  readonly #lowWater: number;
  #pull: Pull | null = null;
  #failedPull: Pull | null = null; // to be repeated
  #pulls = 0; // ids given so far
  #leaseMs: number | null = null; // the longest of those that came last, if any came
  #pullHome: Home | null = null; // where the connection for pulls leads, if known
  #pullRetryAtMs = 0;
  #lingerMs = FIRST_LINGER_MS;

  constructor(readonly options: SessionOptions) {
    this.#leases = new Leases(options.concurrency);
    this.#capacity = options.concurrency + options.prefetch;
    this.#lowWater = Math.max(1, Math.floor((options.prefetch + 1) / 2));
  }

  /** The longest of the leases that came last; null before any came. */
  get leaseMs(): number | null {
    return this.#leaseMs;
  }

  /** Whether leases are held, or verdicts on some are not confirmed. */
  get holdsAny(): boolean {
    return this.#leases.size > 0 || !this.flushed;
  }

  /** Leases that have to be kept alive: those that are held, and those of verdicts on their way. */
  *toKeep(): Iterable<LeaseRef & { home: Home }> {
    for (const { home, context, message } of this.#leases) {
      if (!message.leaseLost) yield { home, context, leaseId: message.leaseId };
    }
    for (const home of this.homes.values()) {
      for (const verdicts of [home.verdicts, home.settling]) {
        for (const each of verdicts?.references() ?? []) yield { home, ...each };
      }
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

  /** Handlers at work. */
  get open(): number {
    return this.#leases.open;
  }

  /** True if `take` may give something now; it need not while leases that ran out wait. */
  get takeable(): boolean {
    return this.#leases.ready > 0 && this.#leases.open < this.#leases.concurrency;
  }

  /** True if nothing is under way or waits to be sent. */
  get flushed(): boolean {
    if (this.#pull !== null) return false;
    for (const home of this.homes.values()) if (home.busy || !home.verdicts.isEmpty) return false;
    return true;
  }

  /** True if nothing is held either. */
  get drained(): boolean {
    return this.#leases.size === 0 && this.flushed;
  }

  /** Give the next message to a handler, or undefined (S4, S6, S7). */
  take(nowMs: number): Message | undefined {
    return this.#leases.take(nowMs, false)[0];
  }

  /** Give the next message and what came with it of its key to one handler; empty if none may. */
  takeRun(nowMs: number): Message[] {
    return this.#leases.take(nowMs, true);
  }

  /** A handler is done with `message`. Throws if it was not with one. */
  settle(message: Message, outcome: Outcome, nowMs: number): void {
    this.settleRun([message], outcome === undefined ? 1 : 0, outcome, nowMs);
  }

  /**
   * A handler is done with what it took: the first `done` of them went well, the next one ended
   * with `outcome`, and those behind it were not begun.
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

  /** Pull no more, and give back what waits (S8). */
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

  /** When the next pull is due; null while none is. */
  pullAt(): number | null {
    const busy = this.stopping || this.#pull !== null;
    const full = this.#leases.ready >= this.#lowWater || this.#leases.size >= this.#capacity;
    return busy || full ? null : this.#pullRetryAtMs;
  }

  /** What to send now, verdicts inside (S1). An answer or a failure has to follow. */
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

  /** Id of the pull that begins now, and when it was first sent (S9). */
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
   * Take the messages in; returns how many came. Throws ProtocolError for a malformed answer; then
   * nothing has changed, and `pullFailed` has to follow.
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

  /**
   * The pull had no answer, or a bad one, or no connection could be made for it; its verdicts go
   * again (S3).
   */
  pullFailed(nowMs: number, jitter: number): void {
    const pull = this.#pull;
    this.#pull = null;
    if (pull !== null) {
      this.#failedPull = pull;
      pull.home?.verdicts.absorb(pull.verdicts);
    }
    this.#pullHome = null; // the next connection may lead elsewhere
    this.pullFailures++;
    this.#pullRetryAtMs = nowMs + backoffMs(this.pullFailures, jitter);
  }

  // ---- settling and extending -------------------------------------------------------------------

  /** When a settle or extend is due at `home` (S2, S5); null while none is. */
  controlAt(home: Home): number | null {
    if (home.busy) return null;
    const flushAt = this.#flushAt(home);
    if (flushAt === null && home.extendAtMs === null) return null;
    return Math.max(Math.min(flushAt ?? Infinity, home.extendAtMs ?? Infinity), home.retryAtMs);
  }

  /** What to send to `home` now, if anything. An answer or a failure has to follow. */
  beginControl(home: Home, nowMs: number): Control | null {
    if (home.extendAtMs !== null && home.extendAtMs <= nowMs) {
      const dueMs = this.#planExtends(home); // the lease it was planned for may be gone
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

  /** The settle or extend was answered; returns messages with handlers whose lease is lost. */
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
          lease.lengthMs = home.askedLengthMs;
          lease.message.deadlineMs = home.askedMs + lease.lengthMs;
        }
      }
      this.#planExtends(home);
    }
    this.#forgetIdleHomes();
    return lost;
  }

  /**
   * No answer: all goes again (S3). Returns messages with handlers whose lease is lost: its time is
   * up, and its proxy says nothing.
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
    // Of several lengths the shortest: the proxy would cap a longer one without saying so.
    home.askedLengthMs = home.extending.reduce(
      (ms, { lengthMs }) => Math.min(ms, lengthMs),
      2 ** 31 - 1,
    );
    const leases = home.extending.map(({ context, message: { leaseId } }) => ({
      context,
      leaseId,
    }));
    const ms = Math.floor(home.askedLengthMs);
    return { method: "extend", request: { groupId, leases, ms, clientId, token } };
  }

  /** The leases to keep alive at `home`; O(n). */
  #leasesOf(home: Home): Lease[] {
    return [...this.#leases].filter((each) => each.home === home && !each.message.leaseLost);
  }

  #planExtends(home: Home): number | null {
    home.extendAtMs = null;
    for (const lease of this.#leasesOf(home)) planExtend(lease);
    return home.extendAtMs;
  }

  /** True if its message is with a handler. */
  #lose(lease: Lease): boolean {
    if (!this.#leases.holds(lease)) return false;
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
