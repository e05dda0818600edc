/**
 * The session against a naive model, with random pulls, ends, losses and failures. The seed is
 * fixed, so that results change only with the code; ORDERLANE_SEED sets another one.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { PullResponse } from "../src/idl.js";
import type { Home } from "../src/leases.js";
import type { Message } from "../src/message.js";
import { Defer, type Outcome, Reject, Retry } from "../src/outcome.js";
import { type Control, Session } from "../src/session.js";

const CONCURRENCY = 3;
const PREFETCH = 3;
const LINGER_MS = 20;

/** Mulberry32: small, and the same on all platforms. */
function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

/** The model's state of one lease. */
interface Given {
  number: number;
  key: string | null;
  /** The pull that returned it; its messages of one key are a run. */
  pull: string;
  home: string;
  deadlineMs: number;
  lengthMs: number;
  message: Message | null; // delivered, now or before
  verdict: "acked" | "nacked" | "released" | null;
  settledMs: number;
  underWay: boolean;
  confirmed: boolean;
  lost: boolean;
}

class Model {
  now = 1_000_000;
  readonly given: Given[] = [];
  readonly session = new Session({
    group: "g",
    topics: ["t"],
    clientId: "c",
    version: "v",
    token: null,
    concurrency: CONCURRENCY,
    prefetch: PREFETCH,
    ackLingerMs: LINGER_MS,
    maxRun: 1,
    requestPrefix: "",
  });
  #handlers: Message[][] = [];
  #pull: { id: string; carried: Given[] } | null = null;
  #home = "a:1";
  readonly #controls = new Map<Home, { control: Control; askedMs: number; leases: Given[] }>();
  readonly #firstSent = new Map<string, number>();

  constructor(readonly below: (limit: number) => number) {}

  step(): void {
    const rules = [
      () => this.take(),
      () => this.take(),
      () => this.settle(),
      () => this.settle(),
      () => (this.now += [1, 2, 7, 20, 90, 250][this.below(6)]!),
      () => this.pull(),
      () => this.pullEnds(),
      () => this.controls(),
      () => this.controlEnds(),
    ];
    rules[this.below(rules.length)]!();
    this.check();
  }

  held(): Given[] {
    return this.given.filter((each) => each.verdict === null && !each.lost);
  }

  take(): void {
    for (;;) {
      const messages =
        this.below(2) === 0 ? this.session.takeRun(this.now) : [this.session.take(this.now)];
      const taken = messages.filter((each) => each !== undefined);
      if (taken.length === 0) return;
      const openKeys = this.#handlers.map((each) => this.of(each[0]!).key);
      taken.forEach((message, place) => {
        const each = this.of(message);
        assert.equal(each.message, null, "delivered twice");
        assert.ok(!each.lost && each.verdict === null);
        assert.ok(each.deadlineMs > this.now, "S4");
        assert.ok(each.key === null || !openKeys.includes(each.key), "S6");
        const earlier = this.given.slice(0, each.number - 1);
        const ahead = earlier.filter((other) => other.key === each.key && each.key !== null);
        const waiting = ahead.filter((o) => o.verdict === null && !o.lost && o.message === null);
        if (place > 0) assert.deepEqual(waiting, [], "a run in order");
        each.message = message;
      });
      this.#handlers.push(taken);
      assert.ok(this.#handlers.length <= CONCURRENCY, "S7");
      assert.ok(!this.session.stopping, "S8");
    }
  }

  of(message: Message): Given {
    return this.given[message.leaseId - 1]!;
  }

  settle(): void {
    if (this.#handlers.length === 0) return;
    const [messages] = this.#handlers.splice(this.below(this.#handlers.length), 1) as [Message[]];
    const outcomes = [new Retry(), new Reject("bad"), new Defer(), new Error("x")];
    const outcome = this.below(2) === 0 ? undefined : outcomes[this.below(4)];
    const done = outcome === undefined ? messages.length : this.below(messages.length);
    this.settled(messages, done, outcome);
  }

  settled(messages: Message[], done: number, outcome: Outcome): void {
    this.session.settleRun(messages, done, outcome, this.now);
    messages.forEach((message, place) => {
      const failed = outcome instanceof Defer ? "released" : "nacked";
      const verdict = place < done ? "acked" : place > done ? "released" : failed;
      Object.assign(this.of(message), { verdict, settledMs: this.now });
    });
    const { key, pull } = this.of(messages[0]!);
    if (outcome === undefined || key === null) return;
    for (const each of this.held()) {
      const behind = each.key === key && each.pull === pull && each.message === null;
      if (behind) Object.assign(each, { verdict: "released", settledMs: this.now }); // S10
    }
  }

  stop(): void {
    this.session.stop(this.now);
    for (const each of this.held()) {
      if (each.message === null) Object.assign(each, { verdict: "released", settledMs: this.now });
    }
  }

  pull(): void {
    const at = this.session.pullAt();
    if (this.#pull !== null || at === null || at > this.now) return;
    const request = this.session.beginPull(this.now);
    const held = this.given.filter((each) => each.verdict === null && (each.message || !each.lost));
    assert.equal(request.maxBatchSize, CONCURRENCY + PREFETCH - held.length, "S7");
    const id = request.requestId!;
    if (!this.#firstSent.has(id)) this.#firstSent.set(id, this.now);
    this.#pull = { id, carried: this.carried(request.acks ?? [], null) };
  }

  pullEnds(): void {
    if (this.#pull === null) return;
    const { id, carried } = this.#pull;
    this.#pull = null;
    if (this.below(4) === 0) {
      this.session.pullFailed(this.now, 0);
      for (const each of carried) each.underWay = false;
      this.#home = this.below(2) === 0 ? "a:1" : "b:2";
      return;
    }
    const room = CONCURRENCY + PREFETCH - this.held().length;
    const keys = ["x", "x", "y", "z", null];
    const count = this.below(Math.max(room, 0) + 1);
    const answer = this.answer(
      Array.from({ length: count }, () => keys[this.below(5)]!),
      id,
    );
    this.session.pullAnswered(answer, this.now);
    for (const each of carried) Object.assign(each, { underWay: false, confirmed: true });
  }

  answer(keys: (string | null)[], id: string): PullResponse {
    const lengthMs = this.below(2) === 0 ? 300 : 600;
    const deadlineMs = this.#firstSent.get(id)! + lengthMs;
    const messages = keys.map((key) => {
      const number = this.given.length + 1;
      const late = this.session.stopping;
      this.given.push({
        ...{ number, key, pull: id, home: this.#home, deadlineMs, lengthMs, message: null },
        ...{ verdict: late ? "released" : null, settledMs: this.now },
        ...{ underWay: false, confirmed: false, lost: false },
      });
      const orderKey = key === null ? null : Buffer.from(key);
      const rest = { key, tag: null, properties: null, attempt: 1, bornAtMs: null };
      const value = Buffer.alloc(0);
      return { ...rest, value, offset: number, leaseId: number, orderKey, messageId: null };
    });
    const context = { groupId: "g", topic: "t", qid: this.#home };
    return { context, messages, more: null, leaseMs: lengthMs, home: this.#home };
  }

  /** The leases of a request's verdicts: settled, not in flight, not confirmed. */
  carried(acks: { context: { qid: string | null } }[], home: string | null): Given[] {
    const found: Given[] = [];
    for (const batch of acks as unknown as Record<string, (number | { leaseId: number })[]>[]) {
      for (const verdict of ["acked", "nacked", "released"] as const) {
        for (const named of batch[verdict]!) {
          const each = this.given[(typeof named === "number" ? named : named.leaseId) - 1]!;
          assert.deepEqual([each.verdict, each.underWay, each.confirmed], [verdict, false, false]);
          assert.ok(home === null || each.home === home, "S1");
          each.underWay = true;
          found.push(each);
        }
      }
    }
    return found;
  }

  controls(): void {
    for (const home of this.session.homes.values()) {
      const at = this.session.controlAt(home);
      if (at === null || at > this.now) continue;
      const control = this.session.beginControl(home, this.now);
      if (control === null) continue;
      let leases: Given[];
      if (control.method === "settle") {
        leases = this.carried(control.request.acks, home.address);
        assert.ok(leases.length > 0);
      } else {
        leases = control.request.leases.map(({ leaseId }) => this.given[leaseId - 1]!);
        const alive = this.held().filter((each) => each.home === home.address);
        assert.deepEqual(new Set(leases), new Set(alive), "S5");
      }
      this.#controls.set(home, { control, askedMs: this.now, leases });
    }
  }

  controlEnds(): void {
    const [entry] = [...this.#controls];
    if (entry === undefined) return;
    const [home, { control, askedMs, leases }] = entry;
    this.#controls.delete(home);
    const settle = control.method === "settle";
    let lost: Given[];
    let told: Message[];
    if (this.below(4) === 0) {
      told = this.session.controlFailed(home, this.now, 0);
      if (settle) for (const each of leases) each.underWay = false;
      lost = this.held().filter((e) => e.home === home.address && e.deadlineMs <= this.now);
      const pending = this.pending(home.address!);
      if (pending.every((each) => each.deadlineMs <= this.now)) {
        for (const each of pending) each.confirmed = true; // S3: dropped
      }
    } else {
      lost = settle ? [] : leases.filter((e) => e.verdict === null && this.below(5) === 0);
      const context = { groupId: "g", topic: "t", qid: home.address };
      const notHeld = lost.map(({ number: leaseId }) => ({ context, leaseId }));
      told = this.session.controlAnswered(home, { notHeld });
      for (const each of leases) {
        if (settle) Object.assign(each, { underWay: false, confirmed: true });
        else if (each.verdict === null && !lost.includes(each)) {
          each.lengthMs = (control as Extract<Control, { method: "extend" }>).request.ms;
          each.deadlineMs = askedMs + each.lengthMs;
        }
      }
    }
    const handled = lost.filter((each) => each.message !== null).map((each) => each.message);
    assert.deepEqual(new Set(told), new Set(handled));
    for (const each of lost) each.lost = true;
  }

  pending(home: string): Given[] {
    return this.given.filter(
      (each) => each.home === home && each.verdict && !each.confirmed && !each.underWay,
    );
  }

  /** S2 and S5: while a verdict or a lease waits, a request to its proxy is due in time. */
  check(): void {
    for (const address of ["a:1", "b:2"]) {
      const pending = this.pending(address);
      const leases = this.held().filter((each) => each.home === address);
      if (pending.length + leases.length === 0) continue;
      const home = this.session.homes.get(address);
      assert.ok(home, "forgotten");
      if (this.#controls.has(home)) continue;
      const limits = [
        ...pending.map((each) => each.settledMs + LINGER_MS),
        ...leases.map((each) => each.deadlineMs - (2 * each.lengthMs) / 3),
      ];
      const at = this.session.controlAt(home);
      assert.ok(at !== null && at <= Math.max(Math.min(...limits), home.retryAtMs), "due in time");
    }
  }

  /** Finally every lease has its verdict confirmed, or is lost. */
  finish(): void {
    for (const messages of this.#handlers) this.settled(messages, messages.length, undefined);
    this.stop();
    while (this.#pull !== null) this.pullEnds();
    for (let round = 0; round < 60 && !this.session.drained; round++) {
      while (this.#controls.size > 0) this.controlEnds();
      this.now += 10_000;
      this.controls();
    }
    assert.ok(this.session.drained);
    assert.ok(this.given.every((each) => each.confirmed || each.lost));
  }
}

test("the session keeps its rules in every order of events", () => {
  const first = Number(process.env["ORDERLANE_SEED"] ?? 1);
  let given = 0;
  for (let seed = first; seed < first + 300; seed++) {
    const model = new Model(random(seed));
    try {
      for (let step = 0; step < 150; step++) model.step();
      model.finish();
    } catch (error) {
      throw new Error(`with ORDERLANE_SEED=${seed}: ${String(error)}`, { cause: error });
    }
    given += model.given.length;
  }
  assert.ok(given > 300, "too few messages were delivered");
});
