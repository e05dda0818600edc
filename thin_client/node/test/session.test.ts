/** The session's rules, one scenario each, as in the other languages' tests. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionLost, ProtocolError } from "../src/errors.js";
import type { PullResponse, WireMessage } from "../src/idl.js";
import type { Home } from "../src/leases.js";
import type { Message } from "../src/message.js";
import { Defer, Reject, Retry } from "../src/outcome.js";
import { backoffMs, isNews, triesElsewhere } from "../src/retries.js";
import { type Control, Session, type SessionOptions } from "../src/session.js";

const START = 1_000_000;

function sessionWith(options: Partial<SessionOptions> = {}): Session {
  return new Session({
    group: "g",
    topics: null,
    clientId: "c",
    version: "v",
    token: null,
    concurrency: 2,
    prefetch: 2,
    ackLingerMs: 20,
    maxRun: 1,
    requestPrefix: "",
    ...options,
  });
}

interface AnswerOptions {
  home?: string | null;
  leaseMs?: number;
  /** Of all messages; undefined: a separate key for each. */
  key?: string | null;
}

function wireMessage(number: number, key: string | null = String(number)): WireMessage {
  return {
    key: null,
    value: Buffer.alloc(0),
    tag: null,
    offset: number,
    properties: null,
    leaseId: number,
    attempt: null,
    bornAtMs: null,
    orderKey: key === null ? null : Buffer.from(key),
    messageId: null,
  };
}

function answer(numbers: number[], options: AnswerOptions = {}): PullResponse {
  const { home = "a:1", leaseMs = 3000, key } = options;
  return {
    context: { groupId: "g", topic: "t", qid: "q#1" },
    messages: numbers.map((number) => wireMessage(number, key)),
    more: null,
    leaseMs,
    home,
  };
}

/** Pull these messages and take as many as handlers may have. */
function pulled(
  session: Session,
  numbers: number[],
  { nowMs = START, ...options }: AnswerOptions & { nowMs?: number } = {},
): Message[] {
  session.beginPull(nowMs);
  session.pullAnswered(answer(numbers, options), nowMs);
  const taken: Message[] = [];
  for (let next = session.take(nowMs); next !== undefined; next = session.take(nowMs)) {
    taken.push(next);
  }
  return taken;
}

function homeOf(session: Session, address = "a:1"): Home {
  const home = session.homes.get(address);
  assert.ok(home, `no home for ${address}`);
  return home;
}

function settleOf(control: Control | null) {
  assert.equal(control?.method, "settle");
  return (control as Extract<Control, { method: "settle" }>).request;
}

function extendOf(control: Control | null) {
  assert.equal(control?.method, "extend");
  return (control as Extract<Control, { method: "extend" }>).request;
}

test("S1 verdicts ride only to their own proxy", () => {
  const session = sessionWith({ concurrency: 4, prefetch: 0 });
  const [old, late] = pulled(session, [1, 2]) as [Message, Message];
  session.beginPull(START);
  session.pullFailed(START, 0);
  const [fresh] = pulled(session, [3], { home: "b:2", nowMs: START + 100 }) as [Message];
  for (const message of [old, fresh]) session.settle(message, undefined, START + 100);

  const riding = session.beginPull(START + 100).acks;
  const settle = settleOf(session.beginControl(homeOf(session), START + 101));

  assert.deepEqual(
    riding?.map((each) => each.acked),
    [[3]],
  );
  assert.deepEqual(settle.acks[0]?.acked, [1]);
  assert.equal(late.leaseLost, false);
});

test("S2 a verdict waits for the linger without a pull", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 3 });
  const [first] = pulled(session, [1, 2, 3, 4]) as [Message];
  session.settle(first, undefined, START);

  assert.equal(session.pullAt(), null);
  assert.equal(session.controlAt(homeOf(session)), START + 20);
  assert.equal(session.beginControl(homeOf(session), START + 19), null);
});

test("S2 a verdict is sent at once if no message waits", () => {
  const session = sessionWith({ concurrency: 2, prefetch: 0 });
  const [first, second] = pulled(session, [1, 2]) as [Message, Message];
  session.settle(first, undefined, START + 1);
  session.beginPull(START + 1);
  assert.equal(session.beginControl(homeOf(session), START + 2), null); // it rides

  session.settle(second, undefined, START + 2);
  assert.equal(session.controlAt(homeOf(session)), START + 2);
});

test("S2 with a message waiting, a verdict is sent once the pull is overdue", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 3 });
  const [first] = pulled(session, [1, 2]) as [Message];
  session.beginPull(START);
  session.settle(first, undefined, START + 1);

  assert.equal(session.controlAt(homeOf(session)), START + 3);
});

test("S2 a verdict inside a run releases nothing and does not hurry", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 8 });
  session.beginPull(START);
  session.pullAnswered(answer([1, 2], { key: "k" }), START);
  session.beginPull(START); // waits for the key's next messages
  session.settle(session.take(START) as Message, undefined, START + 1);
  assert.equal(session.controlAt(homeOf(session)), START + 21);
  session.settle(session.take(START) as Message, undefined, START + 2);
  assert.equal(session.controlAt(homeOf(session)), START + 1);
});

test("S3 a verdict is resent after a failure, and dropped when it is useless", () => {
  const session = sessionWith();
  const [message] = pulled(session, [1]) as [Message];
  session.settle(message, undefined, START);
  const home = homeOf(session);
  for (const nowMs of [START + 1000, START + 3000]) {
    assert.deepEqual(settleOf(session.beginControl(home, nowMs)).acks[0]?.acked, [1]);
    session.controlFailed(home, nowMs, 0);
  }

  assert.equal(session.controlAt(home), null);
  assert.ok(session.drained);
});

test("S4 a message with an expired lease needs an extend", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 1 });
  const [first] = pulled(session, [1, 2]) as [Message];
  const lateMs = START + 3001;
  session.settle(first, undefined, lateMs);
  assert.equal(session.take(lateMs), undefined);

  extendOf(session.beginControl(homeOf(session), lateMs));
  session.controlAnswered(homeOf(session), { notHeld: [] });

  assert.equal(session.take(lateMs)?.deadlineMs, lateMs + 3000);
});

test("S4 a message whose extend is refused is dropped, or reported if it is with a handler", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 1 });
  const [first] = pulled(session, [1, 2]) as [Message];
  const { leases } = extendOf(session.beginControl(homeOf(session), START + 1000));
  const lost = session.controlAnswered(homeOf(session), { notHeld: leases });
  session.settle(first, undefined, START + 1001);

  assert.deepEqual(lost, [first]);
  assert.equal(first.leaseLost, true);
  assert.equal(session.take(START + 1001), undefined);
  assert.equal(session.pullAt() !== null, true);
});

test("S4 a lease that expires at a silent proxy is lost", () => {
  const session = sessionWith();
  const [message] = pulled(session, [1]) as [Message];
  session.beginControl(homeOf(session), START + 2000);
  assert.deepEqual(session.controlFailed(homeOf(session), START + 2999, 0), []);
  session.beginControl(homeOf(session), START + 3100);
  assert.deepEqual(session.controlFailed(homeOf(session), START + 3100, 0), [message]);
});

test("S5 leases of several lengths are extended by the shortest", () => {
  const session = sessionWith({ concurrency: 4, prefetch: 0 });
  pulled(session, [1], { leaseMs: 9000 });
  const [short] = pulled(session, [2]) as [Message];
  const home = homeOf(session);

  assert.equal(session.controlAt(home), START + 1000);
  const extend = extendOf(session.beginControl(home, START + 1000));
  session.controlAnswered(home, { notHeld: [] });

  assert.deepEqual([extend.ms, extend.leases.length], [3000, 2]);
  assert.equal(short.deadlineMs, START + 4000);
  assert.equal(session.controlAt(home), START + 2000);
});

test("S5 leases of waiting messages are extended too", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 3 });
  pulled(session, [1, 2, 3]);
  const extend = extendOf(session.beginControl(homeOf(session), START + 1000));
  assert.deepEqual(
    extend.leases.map((each) => each.leaseId),
    [1, 2, 3],
  );
});

test("S6 two messages of a key sent by a faulty proxy are handled one after the other", () => {
  const session = sessionWith({ concurrency: 4 });
  const [first, ...others] = pulled(session, [1, 2], { key: "k" }) as [Message];
  assert.deepEqual(others, []);
  session.settle(first, undefined, START);
  assert.equal(session.take(START)?.leaseId, 2);
});

test("S7 held messages reduce the capacity", () => {
  const session = sessionWith({ concurrency: 2, prefetch: 4 });
  assert.equal(session.beginPull(START).maxBatchSize, 6);
  session.pullAnswered(answer([1, 2, 3, 4, 5, 6]), START);
  const first = session.take(START) as Message;
  session.take(START);
  assert.equal(session.take(START), undefined);
  assert.equal(session.pullAt(), null);
  session.settle(first, undefined, START);
  for (let i = 0; i < 3; i++) session.settle(session.take(START) as Message, undefined, START);

  assert.equal(session.beginPull(START).maxBatchSize, 4);
});

test("S8 messages that arrive after the stop are released", () => {
  const session = sessionWith();
  session.beginPull(START);
  session.stop(START);
  assert.equal(session.drained, false);
  session.pullAnswered(answer([1]), START);

  assert.equal(session.take(START), undefined);
  const settle = settleOf(session.beginControl(homeOf(session), START));
  assert.deepEqual(settle.acks[0]?.released, [1]);
});

test("S8 a stop releases waiting messages, but not those with handlers", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 3 });
  const [first] = pulled(session, [1, 2, 3]) as [Message];
  session.stop(START);
  const settle = settleOf(session.beginControl(homeOf(session), START));
  assert.deepEqual(settle.acks[0]?.released, [2, 3]);
  session.controlAnswered(homeOf(session), { notHeld: [] });
  assert.equal(session.drained, false);
  session.settle(first, undefined, START + 5);
  assert.deepEqual(settleOf(session.beginControl(homeOf(session), START + 5)).acks[0]?.acked, [1]);
});

test("S9 a failed pull is repeated and its leases run from the first sending", () => {
  const session = sessionWith({ concurrency: 1 });
  const first = session.beginPull(START);
  session.pullFailed(START + 10, 0);
  const again = session.beginPull(START + 500);
  session.pullAnswered(answer([1]), START + 510);

  assert.equal(again.requestId, first.requestId);
  assert.equal(session.take(START + 510)?.deadlineMs, START + 3000);
  assert.notEqual(session.beginPull(START + 520).requestId, first.requestId);
});

test("S9 a failed pull is not repeated once its leases must have expired", () => {
  const session = sessionWith();
  pulled(session, [1], { leaseMs: 400 });
  const first = session.beginPull(START);
  session.pullFailed(START, 0);
  const again = session.beginPull(START + 499); // a pull waits 100 ms, a lease lasts 400 ms
  session.pullFailed(START + 499, 0);
  const late = session.beginPull(START + 500);

  assert.equal(first.requestId, again.requestId);
  assert.notEqual(again.requestId, late.requestId);
});

test("S9 only a broken connection is retried at the same address, and once", () => {
  const broke = new ConnectionLost("closed", { broke: true });
  assert.equal(triesElsewhere(broke, 1), false);
  assert.equal(triesElsewhere(broke, 2), true);
  assert.equal(triesElsewhere(new ConnectionLost("no answer within 3 s"), 1), true);
  assert.equal(triesElsewhere(new ProtocolError("another kind of server"), 1), true);
});

test("S10 a run is handled in sequence and ends at the first failure", () => {
  const session = sessionWith({ concurrency: 4, prefetch: 8 });
  session.beginPull(START);
  session.pullAnswered(answer([1, 2, 3, 4], { key: "k" }), START);
  const first = session.take(START) as Message;
  assert.equal(session.take(START), undefined);
  session.settle(first, undefined, START);
  session.settle(session.take(START) as Message, new TypeError("no"), START);

  assert.equal(session.take(START), undefined);
  const [batch] = session.beginPull(START).acks ?? [];
  assert.deepEqual(batch?.acked, [1]);
  assert.deepEqual(batch?.nacked, [{ leaseId: 2, reason: "TypeError: no" }]);
  assert.deepEqual(batch?.released, [3, 4]);
});

test("S10 messages of another answer do not join the run", () => {
  const session = sessionWith({ concurrency: 4, prefetch: 8 });
  for (const numbers of [[1, 2], [3]]) {
    session.beginPull(START);
    session.pullAnswered(answer(numbers, { key: "k" }), START);
  }
  session.settle(session.take(START) as Message, new Defer(), START);
  assert.equal(session.take(START)?.leaseId, 3);
});

test("S10 a handler of a whole run reports how many messages are done", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 8 });
  session.beginPull(START);
  session.pullAnswered(answer([1, 2, 3, 4], { key: "k" }), START);
  const run = session.takeRun(START);
  assert.deepEqual(
    run.map((each) => each.leaseId),
    [1, 2, 3, 4],
  );
  assert.equal(session.open, 1);
  session.settleRun(run, 2, new Reject("bad"), START);

  const [batch] = session.beginPull(START).acks ?? [];
  assert.deepEqual(batch?.acked, [1, 2]);
  assert.deepEqual(batch?.nacked, [{ leaseId: 3, reject: true, reason: "bad" }]);
  assert.deepEqual(batch?.released, [4]);
  assert.equal(session.open, 0);
});

test("S6 a run taken whole blocks its key for other handlers, and a stop does not affect it", () => {
  const session = sessionWith({ concurrency: 4, prefetch: 8 });
  for (const numbers of [[1, 2], [3]]) {
    session.beginPull(START);
    session.pullAnswered(answer(numbers, { key: "k" }), START);
  }
  const run = session.takeRun(START);
  assert.equal(run.length, 2);
  assert.deepEqual(session.takeRun(START), []);
  session.stop(START);
  session.settleRun(run, 2, undefined, START);
  const settle = settleOf(session.beginControl(homeOf(session), START));
  assert.deepEqual([settle.acks[0]?.acked, settle.acks[0]?.released], [[1, 2], [3]]);
});

test("linger follows the lease", () => {
  const session = sessionWith({ concurrency: 4 });
  pulled(session, [1], { leaseMs: 2000 });
  assert.equal(session.beginPull(START).maxLingerTime, 500);
});

test("an early empty answer pauses pulling", () => {
  const empty: PullResponse = { ...answer([]), context: null };
  const session = sessionWith();
  session.beginPull(START);
  session.pullAnswered(empty, START + 1);
  const early = session.pullAt() as number;
  session.beginPull(START + 60);
  session.pullAnswered(empty, START + 1060);

  assert.ok(early > START + 1);
  assert.ok((session.pullAt() as number) <= START + 1060); // after a full wait the next pull is due
});

test("backoff grows to a limit and spreads", () => {
  assert.deepEqual(
    [1, 2, 3, 8, 100].map((failures) => backoffMs(failures, 1)),
    [50, 100, 200, 5000, 5000],
  );
  assert.equal(backoffMs(1, 0), backoffMs(1, 1) / 2);
});

test("a long outage is logged ever less often", () => {
  const news = Array.from({ length: 99 }, (_, place) => place + 1).filter(isNews);
  assert.deepEqual(news, [1, 2, 4, 8, 16, 32, 64]);
});

const spoilt: Record<string, (response: PullResponse) => void> = {
  "no context": (response) => (response.context = null),
  "no qid": (response) => (response.context = { groupId: "g", topic: "t", qid: null }),
  "no leaseMs": (response) => (response.leaseMs = null),
  "a negative leaseMs": (response) => (response.leaseMs = -5),
  "no leaseId": (response) => ((response.messages as WireMessage[])[1]!.leaseId = null),
  "a leaseId that is not exact": (response) =>
    ((response.messages as WireMessage[])[1]!.leaseId = 2 ** 53),
  "no body": (response) => ((response.messages as WireMessage[])[1]!.value = null),
};
for (const [what, spoil] of Object.entries(spoilt)) {
  test(`an answer with ${what} changes nothing`, () => {
    const session = sessionWith({ concurrency: 4 });
    const [message] = pulled(session, [9]) as [Message];
    session.settle(message, undefined, START);
    session.beginPull(START);
    const response = answer([1, 2]);
    spoil(response);
    assert.throws(() => session.pullAnswered(response, START), ProtocolError);
    session.pullFailed(START, 0);

    assert.equal(session.take(START), undefined);
    const settle = settleOf(session.beginControl(homeOf(session), START + 20));
    assert.deepEqual(settle.acks[0]?.acked, [9]);
  });
}

test("a repeated message is added once", () => {
  const session = sessionWith({ concurrency: 4, prefetch: 4 });
  assert.equal(pulled(session, [1, 2]).length, 2);
  assert.deepEqual(pulled(session, [1, 2]), []);
});

test("settling twice is an error that names the message", () => {
  const session = sessionWith();
  const [message] = pulled(session, [1]) as [Message];
  session.settle(message, new Defer(), START);
  assert.throws(() => session.settle(message, undefined, START), /t\/q#1 at 1: not with a handler/);
});

test("every request carries the token", () => {
  const session = sessionWith({ token: "secret", concurrency: 1 });
  assert.equal(session.beginPull(START).token, "secret");
  session.pullAnswered(answer([1]), START);
  assert.equal(extendOf(session.beginControl(homeOf(session), START + 1000)).token, "secret");
  session.controlAnswered(homeOf(session), { notHeld: [] });
  session.settle(session.take(START) as Message, undefined, START + 1000);
  assert.equal(settleOf(session.beginControl(homeOf(session), START + 1100)).token, "secret");
});

test("a retry carries its delay", () => {
  const session = sessionWith();
  const [one, two] = pulled(session, [1, 2]) as [Message, Message];
  session.settle(one, new Retry({ afterMs: 1500.7 }), START);
  session.settle(two, new Retry(), START);
  const [batch] = session.beginPull(START).acks ?? [];
  assert.deepEqual(batch?.nacked, [{ leaseId: 1, retryAfterMs: 1500 }, { leaseId: 2 }]);
});

test("the session's text is a status line", () => {
  const session = sessionWith();
  pulled(session, [1, 2, 3]);
  assert.equal(String(session), "Session g open=2 ready=1 held=3 pulling=false homes=1");
});

test("S3 extends sent for a blocked loop keep leases, verdicts and what is taken next", () => {
  const session = sessionWith();
  const [first, second] = pulled(session, [1, 2, 3]) as [Message, Message];
  const home = homeOf(session);
  session.settle(first, undefined, START + 10);
  settleOf(session.beginControl(home, START + 30));
  const [askedMs, nowMs] = [START + 2_500, START + 5_000];
  const held = new Set(["1", "2", "3"].map((id) => `t\0q#1\0${id}`));
  assert.equal(session.take(nowMs), undefined);
  assert.deepEqual(
    session.keptMeanwhile({ askedMs, lengthMs: 4_000, held, refused: new Set() }),
    [],
  );

  assert.equal(second.deadlineMs, askedMs + 3_000); // the proxy caps it
  assert.deepEqual(session.controlFailed(home, nowMs, 0), []);
  assert.deepEqual([session.take(nowMs)?.leaseId, home.verdicts.size], [3, 1]);
});

test("S5 an extend sent for a blocked loop reports a lost lease once", () => {
  const session = sessionWith();
  const [first, second] = pulled(session, [1, 2, 3]) as [Message, Message];
  const home = homeOf(session);
  extendOf(session.beginControl(home, START + 1_000));
  const held = new Set(["t\0q#1\0" + 1]);
  const refused = new Set(["t\0q#1\0" + 2, "t\0q#1\0" + 3]);
  const kept = { askedMs: START + 2_500, lengthMs: 3_000, held, refused };

  assert.deepEqual(session.keptMeanwhile(kept), [second]);
  assert.deepEqual(session.keptMeanwhile(kept), []);
  const notHeld = [{ context: { groupId: "g", topic: "t", qid: "q#1" }, leaseId: 2 }];
  assert.deepEqual(session.controlAnswered(home, { notHeld }), []);
  assert.equal(first.deadlineMs, START + 5_500); // the answer to the older extend came later
  assert.equal(session.takeable, false);
});

test("verdicts in a pull are kept alive too", () => {
  const session = sessionWith({ concurrency: 1, prefetch: 0 });
  const [first] = pulled(session, [1]) as [Message];
  session.settle(first, undefined, START + 10);
  session.beginPull(START + 10);

  assert.deepEqual(
    [...session.toKeep()].map(({ leaseId }) => leaseId),
    [1],
  );
});
