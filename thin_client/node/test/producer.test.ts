/** The producer against a scripted proxy. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Producer, SendFailed, type TraceContext } from "../src/index.js";
import type { OutgoingMessage } from "../src/idl.js";
import { FakeProxy, until } from "./fake-proxy.js";

const SILENT = { warn() {}, error() {} };

function producerAt(proxy: FakeProxy, timeoutMs = 10_000): Producer {
  return new Producer({ servers: proxy.address, timeoutMs, logger: SILENT });
}

async function failureOf(sending: Promise<unknown>): Promise<SendFailed> {
  const error = await sending.then(
    () => assert.fail("the message was stored"),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof SendFailed, String(error));
  return error;
}

test("a message is stored under its id", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  const id = await producer.send({ topic: "orders", body: "x", key: "a", tag: "t" });
  const [stored] = proxy.sends;

  assert.equal(stored?.properties["UNIQ_KEY"], id);
  assert.match(id, /^[0-9A-F]{32}$/);
  assert.deepEqual([stored.key, stored.tags, Number(stored.hashId)], ["a", "t", 97]);
});

test("after a lost answer or a busy proxy the message is resent under the same id", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  proxy.cuts = 1;
  proxy.results.push({ code: 0, msg: "" }, { code: 15, msg: "too fast" });
  await producer.send({ topic: "orders", body: "x" });

  const ids = proxy.sends.map((each) => each.properties["UNIQ_KEY"]);
  assert.equal(ids.length, 3);
  assert.equal(new Set(ids).size, 1);
});

test("a batch reports the result of each message", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  const messages = ["A", "B", "C"].map((id) => ({
    ...{ topic: "orders", body: id, properties: { UNIQ_KEY: id } },
  }));
  const stored = { code: 0, msg: null };
  proxy.results.push({
    code: 11,
    msg: "no",
    messages: [stored, { code: 11, msg: "too large" }, stored],
  });
  const error = await failureOf(producer.sendBatch(messages));

  assert.deepEqual(error.messageIds, ["A", "B", "C"]);
  assert.deepEqual(
    [...error.failures],
    [["B", { reason: "too large", code: 11, outcomeUnknown: false }]],
  );
  assert.equal(error.code, 11);
  assert.match(error.message, /sending to orders failed: too large \(message B: not stored\)/);
});

test("a refused batch is known not to be stored", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  proxy.results.push({ code: 71, msg: "a token that this proxy does not know" });
  const message = { topic: "orders", body: "x" };
  const error = await failureOf(producer.sendBatch([message, message]));

  assert.deepEqual(
    [...error.failures.values()].map(({ code, outcomeUnknown }) => [code, outcomeUnknown]),
    [
      [71, false],
      [71, false],
    ],
  );
});

test("only unstored messages of a batch are resent", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  const stored = { code: 0, msg: null };
  proxy.results.push({ code: 12, msg: "no", messages: [stored, { code: 12, msg: "late" }] });
  await producer.sendBatch([
    { topic: "orders", body: "one" },
    { topic: "orders", body: "two" },
  ]);

  assert.deepEqual(
    proxy.sends.map((each) => String(each.body)),
    ["one", "two", "two"],
  );
});

test("calls waiting behind a failed send of their key are not sent, later calls are", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  proxy.results.push({ code: 14, msg: "no such topic" });
  const [first, behind, other] = ["a", "a", "b"].map((key) =>
    producer.send({ topic: "orders", body: key, key }),
  ) as [Promise<string>, Promise<string>, Promise<string>];
  const failed = failureOf(first);
  const heldBack = failureOf(behind);
  assert.equal((await failed).code, 14);
  assert.match((await heldBack).message, /an earlier send of its key failed/);
  assert.equal((await heldBack).outcomeUnknown, false);
  await other;
  await producer.send({ topic: "orders", body: "again", key: "a" });

  assert.deepEqual(
    proxy.sends.map((each) => String(each.body)),
    ["a", "b", "again"],
  );
});

test("a send with a short time limit does not wait longer for earlier ones", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  let answer = (): void => {};
  const answered = new Promise<void>((resolve) => (answer = resolve));
  const send = proxy.sendSync.bind(proxy);
  proxy.sendSync = async (message: OutgoingMessage, timeout: number) => {
    await answered;
    return send(message, timeout);
  };
  const earlier = producer.send({ topic: "orders", body: "1", key: "a" });
  const hurried = producer.send({ topic: "orders", body: "2", key: "a" }, { timeoutMs: 10 });
  const behind = failureOf(producer.send({ topic: "orders", body: "3", key: "a" }));
  assert.match((await failureOf(hurried)).message, /timed out while waiting.*: not stored/);
  answer();
  await earlier;
  assert.match((await behind).message, /an earlier send of its key failed/);
  await producer.send({ topic: "orders", body: "4", key: "a" });

  assert.deepEqual(
    proxy.sends.map((each) => String(each.body)),
    ["1", "4"],
  );
});

test("after a timeout the outcome is unknown", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy, 300);
  proxy.cuts = 100;
  const error = await failureOf(producer.send({ topic: "orders", body: "x" }));

  assert.equal(error.code, null);
  assert.ok(error.outcomeUnknown);
  assert.match(error.message, /may have been stored/);
});

test("without a proxy the message is not stored", async () => {
  const producer = new Producer({ servers: "127.0.0.1:1", timeoutMs: 100, logger: SILENT });
  const error = await failureOf(producer.send({ topic: "orders", body: "x" }));
  assert.equal(error.outcomeUnknown, false);
  assert.match(error.message, /no connection to 127.0.0.1:1.*not stored/);
});

test("a refused delay is reported with its code", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  const message = { topic: "orders", body: "x", delayMs: 60_000 };
  const error = await failureOf(producer.sendBatch([message, { topic: "orders", body: "y" }]));

  assert.equal(error.code, 18);
  assert.equal(proxy.delays.length, 1);
  assert.ok(Math.abs(Number(proxy.delays[0]?.timestamp) * 1000 - Date.now() - 60_000) < 10_000);
  assert.equal(
    error.failures.get(error.messageIds[1]!)?.reason,
    "not sent: an earlier part of the batch failed",
  );
});

test("each message carries its trace", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = new Producer({
    servers: proxy.address,
    trace: ({ key }) => (key === "a" ? { traceparent: "00-1-2-01" } : undefined),
  });
  await producer.send({ topic: "orders", body: "x", key: "a" });
  await producer.send({ topic: "orders", body: "x", key: "b" });
  await until(() => proxy.sends.length === 2);

  assert.deepEqual(
    proxy.sends.map((each) => each.properties["traceparent"]),
    ["00-1-2-01", undefined],
  );
});

test("a trace hook that throws is logged, and the message is sent without its trace", async () => {
  await using proxy = await FakeProxy.open();
  const errors: unknown[][] = [];
  const bug = new Error("no span");
  await using producer = new Producer({
    servers: proxy.address,
    logger: { warn() {}, error: (...error) => errors.push(error) },
    trace: () => {
      throw bug;
    },
  });
  await producer.send({ topic: "orders", body: "x" });

  assert.deepEqual(Object.keys(proxy.sends[0]!.properties), ["UNIQ_KEY"]);
  assert.deepEqual(errors, [["orderlane: the trace hook failed", bug]]);
});

test("a trace hook may have no context: what is undefined is absent", async () => {
  await using proxy = await FakeProxy.open();
  const errors: unknown[][] = [];
  const contexts: unknown[] = [{ traceparent: undefined }, { traceparent: 7 }];
  await using producer = new Producer({
    servers: proxy.address,
    logger: { warn() {}, error: (...error) => errors.push(error) },
    trace: () => contexts.shift() as TraceContext,
  });
  await producer.send({ topic: "orders", body: "x" });
  await producer.send({ topic: "orders", body: "x" });

  assert.deepEqual(
    proxy.sends.map((each) => Object.keys(each.properties)),
    [["UNIQ_KEY"], ["UNIQ_KEY"]],
  );
  assert.deepEqual(errors.map(String), [
    "orderlane: the trace hook failed," +
      "TypeError: traceparent of a trace context is 7: expected text",
  ]);
});

test("a property that is undefined is refused in one sentence", async () => {
  await using producer = new Producer({ servers: "127.0.0.1:1" });
  const properties = { source: undefined } as unknown as Record<string, string>;
  await assert.rejects(
    producer.send({ topic: "orders", body: "x", properties }),
    /^TypeError: undefined in a message to orders is not valid text$/,
  );
});

test("a message is sent as it was at the call, whatever happens to its bytes later", async () => {
  await using proxy = await FakeProxy.open();
  await using producer = producerAt(proxy);
  const body = Buffer.from("one");
  const sending = producer.send({ topic: "orders", body });
  body.write("two");
  await sending;

  assert.equal(String(proxy.sends[0]?.body), "one");
});
