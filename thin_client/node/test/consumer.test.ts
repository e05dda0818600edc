/** The consumer against a scripted proxy. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough, Readable, Writable } from "node:stream";
import { test } from "node:test";
import { inspect } from "node:util";
import { Worker } from "node:worker_threads";
import consumerTypes from "#gen/consumer_proxy_types.js";
import {
  Consumer,
  type ConsumerOptions,
  type ConsumerTrace,
  Defer,
  LeaseLost,
  type Message,
  Puller,
  Refused,
  Reject,
  Retry,
} from "../src/index.js";
import { FakeProxy, until } from "./fake-proxy.js";
import { EXTENDED, SETTLED, type SlowProxyData } from "./slow-proxy.js";

const SILENT = { warn() {}, error() {} };

function consumerAt(proxy: FakeProxy, options: Partial<ConsumerOptions> = {}): Consumer {
  return new Consumer({ servers: proxy.address, group: "g", logger: SILENT, ...options });
}

test("handlers run in parallel, one key in order, and their ends are verdicts", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { concurrency: 4 });
  const log: string[] = [];
  consumer.on("handleEnd", (message, outcome) => log.push(`${message.leaseId} ${outcome}`));
  proxy.put({ key: "a" }, { key: "a" }, { key: "b" }, { key: "c" }, {});
  let together = 0;
  let most = 0;
  const running = consumer.run(async (message) => {
    most = Math.max(most, ++together);
    await new Promise((resolve) => setTimeout(resolve, 20));
    together--;
    if (message.leaseId === 3) throw new Reject("bad");
    if (message.leaseId === 4) throw new Retry({ afterMs: 5 });
    if (message.leaseId === 5) throw new Defer();
  });
  await until(() => log.length === 5);
  await consumer.close();
  await running;

  assert.equal(most, 4);
  assert.ok(log.indexOf("1 ok") < log.indexOf("2 ok"));
  assert.deepEqual(proxy.verdicts.sort(), ["1 ok", "2 ok", "3 reject", "4 retry", "5 defer"]);
});

test("an error of a handler is logged and means retry", async () => {
  await using proxy = await FakeProxy.open();
  const logged: string[] = [];
  const logger = { warn() {}, error: (text: string) => logged.push(text) };
  await using consumer = consumerAt(proxy, { logger });
  proxy.put({ key: "a" });
  void consumer.run(() => {
    throw new TypeError("no");
  });
  await until(() => proxy.verdicts.length === 1);

  assert.deepEqual(proxy.verdicts, ["1 retry"]);
  assert.match(logged[0]!, /handling orders\/broker-a_0#1 at offset 0 \(attempt 1\) failed/);
});

test("any thrown value means retry", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy);
  proxy.put({ key: "a" }, { key: "b" }, { key: "c" });
  const thrown = [null, Object.create(null), Symbol("s")];
  void consumer.run((message) => {
    throw thrown[message.leaseId - 1];
  });
  await until(() => proxy.verdicts.length === 3);

  assert.deepEqual(proxy.verdicts.sort(), ["1 retry", "2 retry", "3 retry"]);
});

test("a batch holds a run of one key, and reports how many messages are done", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { maxRun: 8, concurrency: 1 });
  proxy.put({ key: "a" }, { key: "a" }, { key: "a" }, { key: "b" }, { key: "b" }, {});
  const seen: string[] = [];
  void consumer.runBatches(async (batch, { signal }) => {
    assert.equal(signal.aborted, false);
    seen.push(`${batch.orderKey} ${batch.length}`);
    if (batch.orderKey === "a") return { done: 1, failed: new Reject("second") };
    if (batch.orderKey === "b") {
      for (const message of batch) {
        batch.ok(message);
        throw new Error("at the next message");
      }
    }
    return undefined;
  });
  await until(() => proxy.verdicts.length === 6);

  assert.deepEqual(seen, ["a 3", "b 2", "null 1"]);
  assert.deepEqual(proxy.verdicts.sort(), [
    ...["1 ok", "2 reject", "3 defer", "4 ok", "5 retry", "6 ok"],
  ]);
  assert.equal(proxy.pulls[0]!.maxRun, 8);
});

test("the iterator returns one message after the other, and each must be settled", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy);
  proxy.put({ key: "a" }, { key: "b" }, { key: "c" }, { key: "d" });
  const messages = consumer.messages();
  const asked = messages.next();
  await assert.rejects(messages.next(), /one at a time/);
  const { value: first } = await asked;
  await assert.rejects(messages.next(), /is not settled: call its ok\(\), retry\(\)/);
  first.ok();
  assert.throws(() => first.ok(), /cannot be settled: already settled/);
  for await (const message of messages) {
    if (message.leaseId === 2) message.retry({ afterMs: 100 });
    else break;
  }

  // Waiting messages were released; the one at which the loop was left failed.
  assert.deepEqual(proxy.verdicts.sort(), ["1 ok", "2 retry", "3 retry", "4 defer"]);
  assert.deepEqual(await messages.next(), { value: undefined, done: true });
});

test("a lost lease aborts its handler's signal, and is reported", async () => {
  await using proxy = await FakeProxy.open();
  proxy.leaseMs = 300;
  proxy.over.add(1);
  await using consumer = consumerAt(proxy);
  const lost: Message[] = [];
  consumer.on("leaseLost", (message) => lost.push(message));
  proxy.put({ key: "a" });
  let reason: unknown;
  void consumer.run(async (message, { signal }) => {
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    reason = signal.reason;
    assert.ok(message.leaseLost);
  });
  await until(() => reason !== undefined);

  assert.ok(reason instanceof LeaseLost);
  assert.deepEqual(
    lost.map((message) => message.leaseId),
    [1],
  );
});

test("an abort drains: handlers end, and waiting messages are released", async () => {
  await using proxy = await FakeProxy.open();
  const consumer = consumerAt(proxy, { concurrency: 1 });
  const stop = new AbortController();
  proxy.put({ key: "a" }, { key: "b" });
  await consumer.run(
    async () => {
      stop.abort();
      await new Promise((resolve) => setTimeout(resolve, 30));
    },
    { signal: stop.signal },
  );

  assert.deepEqual(proxy.verdicts.sort(), ["1 ok", "2 defer"]);
  await assert.rejects(
    consumer.run(() => {}),
    /a consumer is used once/,
  );
});

test("a consumer stopped before its start ends at once", async () => {
  await using proxy = await FakeProxy.open();
  const consumer = consumerAt(proxy);
  consumer.stop();
  await consumer.run(() => assert.fail("it was stopped"));
  await consumerAt(proxy).run(() => assert.fail("it was stopped"), { signal: AbortSignal.abort() });
  await consumerAt(proxy).close();

  assert.deepEqual(proxy.pulls, []);
});

test("the drain timeout aborts handlers and releases their messages", async () => {
  await using proxy = await FakeProxy.open();
  const consumer = consumerAt(proxy, { drainTimeoutMs: 30 });
  proxy.put({ key: "a" });
  await consumer.run(async (_, { signal }) => {
    consumer.stop();
    await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  });

  assert.deepEqual(proxy.verdicts, ["1 defer"]);
});

test("an iterator's message that ends at the drain timeout is released", async () => {
  await using proxy = await FakeProxy.open();
  const consumer = consumerAt(proxy, { drainTimeoutMs: 30 });
  proxy.put({ key: "a" });
  for await (const message of consumer.messages()) {
    const { signal } = message;
    consumer.stop();
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    message.fail(signal.reason);
  }

  assert.deepEqual(proxy.verdicts, ["1 defer"]);
});

test("a second stop does not wait for handlers", async () => {
  await using proxy = await FakeProxy.open();
  const consumer = consumerAt(proxy);
  proxy.put({ key: "a" });
  const running = consumer.run(async (_, { signal }) => {
    consumer.stop();
    setTimeout(() => consumer.stop(), 20);
    await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  });
  await running; // long before the drain timeout of 30 s

  assert.deepEqual(proxy.verdicts, ["1 defer"]);
});

test("a close after a stop waits for handlers, and so does a second one", async () => {
  await using proxy = await FakeProxy.open();
  const consumer = consumerAt(proxy);
  proxy.put({ key: "a" });
  let closing: Promise<unknown> | undefined;
  await consumer.run(async (_, { signal }) => {
    consumer.stop();
    await new Promise((resolve) => setTimeout(resolve, 20));
    closing = Promise.all([consumer.close(), consumer.close()]);
    await new Promise((resolve) => setTimeout(resolve, 20));
    signal.throwIfAborted();
  });
  await closing;

  assert.deepEqual(proxy.verdicts, ["1 ok"]);
});

test("a close inside a handler does not wait for it", { timeout: 20_000 }, async () => {
  await using proxy = await FakeProxy.open();
  for (const form of ["run", "runBatches"] as const) {
    const consumer = consumerAt(proxy);
    proxy.put({ key: form });
    await consumer[form](async () => {
      await new Promise((resolve) => setImmediate(resolve));
      await consumer.close();
      await consumer[Symbol.asyncDispose]();
    });
  }
  assert.deepEqual(proxy.verdicts, ["1 ok", "2 ok"]);
});

test("a permanent refusal ends the run and the iterator", async () => {
  await using proxy = await FakeProxy.open();
  const types = consumerTypes as unknown as { PullException: new (args: object) => Error };
  proxy.refusal = new types.PullException({ code: 404, message: "no such group" });
  const failure = (error: unknown) =>
    error instanceof Refused && error.code === 404 && /no such group/.test(error.message);
  await assert.rejects(
    consumerAt(proxy).run(() => {}),
    failure,
  );
  await assert.rejects(consumerAt(proxy).messages().next(), failure);
});

test("a pull with a lost answer is repeated under the same id at the same proxy", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { servers: [proxy.address, "127.0.0.1:1"] });
  const errors: string[] = [];
  consumer.on("error", (error) => errors.push(error.kind));
  proxy.cuts = 1;
  proxy.put({ key: "a" });
  void consumer.run(() => {});
  await until(() => proxy.pulls.length > 1);

  assert.equal(proxy.pulls[1]!.requestId, proxy.pulls[0]!.requestId);
  assert.deepEqual(errors, ["connection"]);
});

test("a dead proxy in the list is skipped", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { servers: `127.0.0.1:1,${proxy.address}` });
  proxy.put({ key: "a" });
  void consumer.run(() => {});
  await until(() => proxy.verdicts.length === 1);
});

test("the longest timeout still works with a pull's own wait added", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { requestTimeoutMs: 2 ** 31 - 1 });
  proxy.put({ key: "a" });
  void consumer.run(() => {});
  await until(() => proxy.verdicts.includes("1 ok"));
});

test("the trace hook wraps the handler", async () => {
  await using proxy = await FakeProxy.open();
  const seen: unknown[] = [];
  await using consumer = consumerAt(proxy, {
    trace: async (context, message, handle) => {
      seen.push(context, message.leaseId);
      const result = await handle();
      seen.push("after");
      return result;
    },
  });
  proxy.put({ key: "a", properties: { traceparent: "00-1-2-01", other: "x" } });
  void consumer.run(() => void seen.push("handler"));
  await until(() => proxy.verdicts.length === 1);

  assert.deepEqual(seen, [{ traceparent: "00-1-2-01" }, 1, "handler", "after"]);
});

test("a trace hook that fails, or does not wait, changes nothing for its message", async () => {
  await using proxy = await FakeProxy.open();
  const errors: string[] = [];
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => (end = resolve));
  const hooks: ConsumerTrace[] = [
    () => Promise.reject(new Error("no span")),
    async (_context, _message, handle) => {
      await handle();
      throw new Error("no exporter");
    },
    async (_context, _message, handle) => void handle(),
  ];
  await using consumer = consumerAt(proxy, {
    concurrency: 1,
    logger: { warn() {}, error: (_text, error) => errors.push((error as Error).message) },
    trace: (context, message, handle) => hooks.shift()!(context, message, handle),
  });
  proxy.put({ key: "a" }, { key: "a" }, { key: "a" });
  const seen: number[] = [];
  void consumer.run(async ({ leaseId }) => {
    seen.push(leaseId);
    if (leaseId === 3) await ended;
  });
  await until(() => proxy.verdicts.length === 2 && seen.length === 3);
  end();
  await until(() => proxy.verdicts.length === 3);

  assert.deepEqual(seen, [1, 2, 3]);
  assert.deepEqual(proxy.verdicts.sort(), ["1 ok", "2 ok", "3 ok"]);
  assert.deepEqual(errors, ["no span", "no exporter", "it did not wait for the handler"]);
});

test("a loop that does not settle fails, and its message is retried", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy);
  proxy.put({ key: "a" }, { key: "a" });
  const seen: number[] = [];
  const loop = (async () => {
    for await (const message of consumer.messages()) seen.push(message.leaseId);
  })();
  await assert.rejects(loop, /is not settled/);
  await until(() => proxy.verdicts.length === 2);

  assert.deepEqual(seen, [1]);
  assert.deepEqual(proxy.verdicts.sort(), ["1 retry", "2 defer"]);
});

test("a result whose work has not run does not ack", async (t) => {
  const timers = [setTimeout(() => {}, 60_000), setInterval(() => {}, 60_000)] as const;
  const program = spawn(process.execPath, ["-e", "process.stdin.resume()"]);
  t.after(() => {
    for (const timer of timers) clearTimeout(timer);
    program.kill();
  });
  const results: unknown[] = [
    (function* () {})(),
    (async function* () {})(),
    () => {},
    [Promise.resolve()],
    new Set([Promise.resolve()]),
    new Map([["a", Promise.resolve()]]),
    { a: Promise.resolve() },
    { next: () => ({ done: true }), [Symbol.iterator]: () => [].values() }, // as of iterator.map
    { "@@observable": () => {}, subscribe() {} },
    [() => {}],
    [(function* () {})()],
    new PassThrough(),
    new Writable({ write() {} }),
    ...timers,
    program,
    new Retry(),
    [null, new Error("of one part")],
    [{ status: "fulfilled", value: 1 }, { status: "rejected", reason: new Error("no") }],
  ];
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { concurrency: results.length });
  proxy.put(...results.map((_, place) => ({ key: String(place) })));
  const running = consumer.run((message) => results[message.leaseId - 1] as undefined);
  await until(() => proxy.verdicts.length === results.length);
  await consumer.close();
  await running;

  assert.deepEqual(
    proxy.verdicts.sort(),
    results.map((_, place) => `${place + 1} retry`).sort(),
  );
});

test("a result of finished work acks, whatever it is", async () => {
  const written = new Writable({ write: (_chunk, _encoding, done) => done() });
  await new Promise<void>((resolve) => written.end("x", resolve));
  const read = Readable.from(["x"]);
  for await (const _each of read);
  const program = spawn(process.execPath, ["-e", ""]);
  const timers = [setTimeout(() => {}, 1), setImmediate(() => {})];
  await once(program, "exit");
  const results: unknown[] = [
    7,
    ...timers,
    program,
    [],
    [{ status: "fulfilled", value: 1 }],
    [{ status: "rejected", reason: "no stock", order: 7 }],
    { status: 200, request: new PassThrough(), done: () => {} },
    written,
    read,
    Buffer.from("x"),
  ];
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { concurrency: results.length });
  proxy.put(...results.map((_, place) => ({ key: String(place) })));
  void consumer.run((message) => results[message.leaseId - 1] as undefined);
  await until(() => proxy.verdicts.length === results.length);

  assert.deepEqual(
    proxy.verdicts.sort(),
    results.map((_, place) => `${place + 1} ok`).sort(),
  );
});

test("an error that a batch handler returns counts as if it were thrown", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { maxRun: 4 });
  proxy.put({ key: "a" }, { key: "a" });
  void consumer.runBatches(() => new Reject("bad") as never);
  await until(() => proxy.verdicts.length === 2);

  assert.deepEqual(proxy.verdicts.sort(), ["1 reject", "2 defer"]);
});

class Unreadable extends Error {
  override get message(): string {
    throw new Error("no text for this language");
  }
  [inspect.custom](): string {
    return this.message;
  }
}

class OddRetry extends Retry {
  override readonly afterMs = "soon" as never;
}

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

test("every value that a handler throws gives a verdict", async () => {
  const thrown: [unknown, string][] = [
    [undefined, "retry Error: undefined"],
    [null, "retry Error: null"],
    ["a text", "retry Error: a text"],
    [Symbol("s"), "retry Error: Symbol(s)"],
    [Object.create(null), "retry Error: [object Object]"],
    [revoked(), "retry Error: (its text cannot be shown)"],
    [new Unreadable(), "retry Error: (its text cannot be shown)"],
    [Object.assign(new Error(), { message: Symbol("s") }), "retry Error: Symbol(s)"],
    [Object.assign(new Error("x"), { name: null }), "retry null: x"],
    [new Reject(null), "reject "],
    [new Reject(42), "reject 42"],
    [new Reject(new Error("no such customer")), "reject no such customer"],
    [Object.create(Reject.prototype), "reject "],
    [new OddRetry(), "retry "],
  ];
  await using proxy = await FakeProxy.open();
  const logger = { warn() {}, error: (_text: string, detail: unknown) => void inspect(detail) };
  await using consumer = consumerAt(proxy, { concurrency: 1, logger });
  proxy.put(...thrown.map((_, place) => ({ key: String(place) })), { key: "last" });
  void consumer.run((message) => {
    const each = thrown[message.leaseId - 1];
    if (each !== undefined) throw each[0];
  });
  await until(() => proxy.verdicts.includes(`${thrown.length + 1} ok`));
  await consumer.close();

  const reasons = new Map<number, string>();
  for (const { acks } of [...proxy.pulls, ...proxy.settles]) {
    for (const { nacked } of acks ?? []) {
      for (const { leaseId, reject, reason } of nacked ?? []) {
        reasons.set(Number(leaseId), `${reject ? "reject" : "retry"} ${reason ?? ""}`);
      }
    }
  }
  assert.deepEqual(
    thrown.map((_, place) => reasons.get(place + 1)),
    thrown.map(([, verdict]) => verdict),
  );
});

test("a logger that throws holds no message", async () => {
  const fail = (): never => {
    throw new Error("the disk is full");
  };
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy, { logger: { warn: fail, error: fail } });
  consumer.on("handleStart", fail);
  proxy.put({ key: "a" });
  void consumer.run(fail);
  await until(() => proxy.verdicts.includes("1 retry"));
});

test("a message of an iterator is rejected for any reason", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy);
  proxy.put({ key: "a" }, { key: "b" });
  for await (const message of consumer.messages()) {
    message.reject(message.leaseId === 1 ? 42 : new Error("no such customer"));
    if (message.leaseId === 2) break;
  }
  assert.deepEqual(proxy.verdicts.sort(), ["1 reject", "2 reject"]);
});

/** A proxy in another thread. */
async function slowProxy(data: Omit<SlowProxyData, "signals">) {
  const signals = new Int32Array(new SharedArrayBuffer(8));
  const workerData: SlowProxyData = { signals, ...data };
  const server = new Worker(join(__dirname, "slow-proxy.js"), { workerData });
  const [address] = (await once(server, "message")) as [string];
  const verdicts = async (): Promise<string[]> => {
    server.postMessage("tell");
    const [told] = (await once(server, "message")) as [string[]];
    return told.sort();
  };
  const end = async (): Promise<void> => void (await server.terminate());
  return { address, signals, verdicts, [Symbol.asyncDispose]: end };
}

test("a handler that blocks the event loop keeps its leases, with a warning", async () => {
  await using proxy = await slowProxy({ leaseMs: 1_000, keys: ["a", "b"], firstSettle: "prompt" });
  const warnings: string[] = [];
  const logger = { warn: (text: string) => warnings.push(text), error() {} };
  const consumer = new Consumer({ servers: proxy.address, group: "g", logger, concurrency: 1 });
  let handled = 0;
  let blocked: string | undefined;
  const running = consumer.run(() => {
    if (handled++ === 0) blocked = Atomics.wait(proxy.signals, EXTENDED, 0, 60_000);
  });
  await until(() => handled === 2);
  await consumer.close();
  await running;

  assert.notEqual(blocked, "timed-out", "the leases were not extended meanwhile");
  assert.deepEqual(await proxy.verdicts(), ["1 ok", "2 ok"]);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0]!, /the event loop was blocked for \d+\.\d s, the lease is 1 s: compute in/);
});

for (const [firstSettle, sent] of [
  ["late", ["1 ok", "2 ok", "3 ok", "4 ok"]],
  ["lost", ["1 ok", "1 ok", "2 ok", "3 ok", "4 ok"]],
] as const) {
  test(`a blocked loop keeps leases and verdicts beside a settle's ${firstSettle} answer`, async () => {
    const keys = ["a", "b", "c", "d"];
    await using proxy = await slowProxy({ leaseMs: 2_000, keys, firstSettle });
    const consumer = new Consumer({
      servers: proxy.address,
      group: "g",
      ...{ concurrency: 2, prefetch: 2, requestTimeoutMs: 1_000, logger: SILENT },
    });
    const lost: string[] = [];
    const handled: string[] = [];
    consumer.on("leaseLost", ({ key }) => lost.push(key!));
    const running = consumer.run(async ({ key }) => {
      if (key === "b") {
        // The handler continues from a callback of the file system, before the socket is read.
        while (Atomics.load(proxy.signals, SETTLED) === 0) await readFile(__filename);
        Atomics.wait(proxy.signals, EXTENDED, 0, 60_000);
      }
      if (key === "c") await until(() => handled.includes("d") || lost.length > 0);
      handled.push(key!);
    });
    await until(() => handled.length === 4 || lost.length > 0);
    await consumer.close();
    await running;

    assert.deepEqual(lost, []);
    assert.deepEqual(handled, ["a", "b", "d", "c"]);
    assert.deepEqual(await proxy.verdicts(), sent);
  });
}

test("handlers whose call runs no work are refused", async () => {
  const consumer = new Consumer({ servers: "127.0.0.1:1", group: "g" });
  const run = (handler: unknown): Promise<void> => consumer.run(handler as never);
  await assert.rejects(run(function* handle() {}), /handle is a generator function/);
  await assert.rejects(run(async function* handle() {}), /handle is a generator function/);
  await assert.rejects(run(class Handle {}), /Handle is a class/);
  await assert.rejects(
    run((_message: Message, _context: unknown, _done: () => void) => {}),
    /takes 3 parameters: .*there is no callback/,
  );
});

test("handlers that are not functions are refused", async () => {
  const consumer = new Consumer({ servers: "127.0.0.1:1", group: "g" });
  await assert.rejects(consumer.run("handle" as never), /of type string: expected a function/);
  await assert.rejects(consumer.runBatches(undefined as never), /of type undefined: expected/);
});

test("a listener that throws is harmless", async () => {
  await using proxy = await FakeProxy.open();
  await using consumer = consumerAt(proxy);
  consumer.on("handleStart", () => {
    throw new Error("a bug");
  });
  consumer.on("handleEnd", async () => {
    throw new Error("a bug"); // not awaited
  });
  proxy.put({ key: "a" });
  void consumer.run(() => {});
  await until(() => proxy.verdicts.includes("1 ok"));
});

test("single calls pull, extend and settle", async () => {
  await using proxy = await FakeProxy.open();
  await using puller = new Puller({ servers: `127.0.0.1:1,${proxy.address}`, group: "g" });
  proxy.put({ key: "a", body: '{"id": 7}' }, { key: "b" });
  proxy.over.add(2);
  const [first, second] = (await puller.pull({ max: 2 })) as [Message, Message];

  assert.deepEqual(first.json(), { id: 7 });
  assert.deepEqual([first.orderKey, first.attempt, first.messageId], ["a", 1, "M1"]);
  assert.ok(first.msLeft > 0 && first.msLeft <= 2_000);
  assert.equal(await puller.extend(first, 10_000), true);
  assert.ok(first.msLeft > 5_000);
  assert.equal(await puller.extend(second, 10_000), false);
  assert.ok(second.leaseLost);
  // The proxy would end the lease, and the answer would say that it is held.
  await assert.rejects(puller.extend(first, 0.9), {
    name: "RangeError",
    message: "ms is 0.9: expected 1 or more milliseconds",
  });
  assert.equal(proxy.extends.length, 2);
  assert.equal(await puller.settle(first), true);
  assert.deepEqual(proxy.verdicts, ["1 ok"]);
});

test("concurrent single calls are sent one after the other", { timeout: 10_000 }, async () => {
  await using proxy = await FakeProxy.open();
  await using puller = new Puller({ servers: proxy.address, group: "g", requestTimeoutMs: 1_000 });
  proxy.put({ key: "a" }, { key: "b" });
  const pulled = await Promise.all([puller.pull(), puller.pull()]);
  proxy.cuts = 1; // the next call must not fail
  const settled = await Promise.allSettled(pulled.flat().map((each) => puller.settle(each)));

  assert.deepEqual(
    settled.map(({ status }) => status),
    ["rejected", "fulfilled"],
  );
  assert.deepEqual(proxy.verdicts, ["1 ok", "2 ok"]);
});

test("a close ends single calls that are connecting or waiting", { timeout: 10_000 }, async () => {
  await using proxy = await FakeProxy.open();
  const puller = new Puller({ servers: proxy.address, group: "g", requestTimeoutMs: 60_000 });
  const pulls = [puller.pull({ waitMs: 0 }), puller.pull({ waitMs: 0 })];
  puller.close();
  const closed = { message: /the puller was closed before the request/ };
  for (const pull of pulls) await assert.rejects(pull, closed);
  assert.equal(proxy.pulls.length, 0);

  await puller.pull({ waitMs: 0 }); // opens a new connection
  const pull = puller.pull({ waitMs: 0 });
  await Promise.resolve(); // its turn begins
  puller.close();
  await assert.rejects(pull, /the connection to .* (was|is) closed/);
  await until(() => proxy.connections === 0);
});

test("after the idle connection of pulls was cut, a verdict goes to the proxy of its lease", async () => {
  await using proxy = await FakeProxy.open();
  await using balancer = await FakeProxy.open(); // the next connection may lead to another proxy
  balancer.home = proxy;
  await using consumer = consumerAt(balancer, { concurrency: 1, prefetch: 0, ackLingerMs: 5_000 });
  let end: (() => void) | null = null;
  const running = consumer.run(() => new Promise<void>((resolve) => (end = resolve)));
  balancer.put({ key: "a" });
  await until(() => end !== null);
  balancer.cut();
  await until(() => balancer.connections === 0);
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate); // the client sees it, too
  end!();
  await until(() => balancer.verdicts.length + proxy.verdicts.length > 0);

  assert.deepEqual([balancer.verdicts, proxy.verdicts], [[], ["1 ok"]]);
  consumer.stop();
  await running;
});
