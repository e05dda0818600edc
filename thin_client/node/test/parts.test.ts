/** The small pure parts. */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAddress, parseAddresses, Servers } from "../src/addresses.js";
import { MAX_I32 } from "../src/arguments.js";
import { makeCall } from "../src/calls.js";
import { nowMs } from "../src/clock.js";
import { CompactReader, CompactWriter } from "../src/compact.js";
import { Connection } from "../src/connection.js";
import { ConnectionLost, ProtocolError } from "../src/errors.js";
import { FrameBuffer, MAX_FRAME_BYTES } from "../src/frames.js";
import { Consumer, Producer } from "../src/index.js";
import { keyReader } from "../src/json-path.js";
import { keyHash, plainKey } from "../src/key-hash.js";
import { readOptions } from "../src/options.js";
import { outcomeName, outcomeOf, Reject, Retry } from "../src/outcome.js";
import { sendable } from "../src/outgoing.js";
import { SendOrder } from "../src/send-order.js";
import { Session } from "../src/session.js";
import { MAX_REASON, Verdicts } from "../src/verdicts.js";

test("key hashes match the shared vectors", () => {
  const file = join(__dirname, "../../../../tests/conformance/key_hash_vectors.json");
  assert.ok(existsSync(file), "the vectors are part of the repository");
  const vectors = JSON.parse(readFileSync(file, "utf8")) as {
    key: string;
    hash: number;
    queue: Record<string, number>;
  }[];
  assert.ok(vectors.length > 10);
  for (const { key, hash, queue } of vectors) {
    assert.equal(keyHash(key), hash, key);
    for (const [queues, place] of Object.entries(queue)) {
      assert.equal(Math.abs(keyHash(key) % Number(queues)), place);
    }
  }
});

test("keys match the vectors shared by the proxy and all clients", () => {
  const file = join(__dirname, "../../../../tests/conformance/key_vectors.json");
  const { keys, values } = JSON.parse(readFileSync(file, "utf8")) as {
    keys: { text: string; key: string; hash: number }[];
    values: { body: string; path: string; key: string | null; hash?: number; refused?: true }[];
  };
  for (const { text, key, hash } of keys) {
    assert.equal(plainKey(text), key);
    assert.equal(keyHash(key), hash);
    const { wire } = sendable({ topic: "t", body: "x", key: text }, { token: null, trace: {} });
    assert.equal(wire.hashId, key === "" ? null : hash, JSON.stringify(text));
    assert.equal(wire.key, text);
  }
  assert.ok(values.length > 100);
  for (const { body, path, key, hash, refused } of values) {
    if (refused) {
      assert.throws(() => keyReader(path)(body), /JSON|nests more than/, body);
      continue;
    }
    const found = keyReader(path)(body);
    assert.equal(found, key, body);
    if (found !== null) assert.equal(keyHash(found), hash, body);
  }
});

test("a sharding key is read from the body as canonical text", () => {
  const cases: [string, string, string | null][] = [
    ["$.id", '{"id": "N14228"}', "N14228"],
    ["$.id", '{"id": 7}', "7"],
    ["$.id", '{"id": 7.0}', "7"],
    ["$.id", '{"id": -0.0}', "0"],
    ["$.id", '{"id": 12345678901234567890}', "12345678901234567890"],
    ["$.id", '{"id": 9007199254740993}', "9007199254740993"],
    ["$.id", '{"note": "9007199254740993, \\"", "id": -9007199254740993}', "-9007199254740993"],
    ["$.id", '{"id": 0.12345678901234567}', "0.12345678901234566"],
    ["$.id", '{"id": 1e300}', "1e+300"],
    ["$.id", '{"id": 0.0000015}', "1.5e-6"],
    ["$.id", '{"id": true}', "true"],
    ["$.id", '{"id": {"b": [1, "x"], "a": null}}', '{"a":null,"b":[1,"x"]}'],
    ["$.a.b[1]['c d']", '{"a": {"b": [0, {"c d": "deep"}]}}', "deep"],
    ["$[0]", '["first"]', "first"],
    ['$["a b"].d-e.ü', '{"a b": {"d-e": {"ü": 1.50}}}', "1.5"],
    ["$.id", '{"id": null}', null],
    ["$.id", "{}", null],
    ["$.id[0]", '{"id": "text"}', null],
    ["$[1]", '["first"]', null],
    ["$.length", "[1, 2]", null],
    ["$.toString", "{}", null],
  ];
  for (const [path, body, key] of cases)
    assert.equal(keyReader(path)(body), key, `${path} ${body}`);
  assert.throws(() => keyReader("$.id")("no JSON"), /cannot read \$\.id: the body is not JSON/);
  for (const path of ["", "$", "id", "$..id", "$.*", "$[?@.a]", "$.a[-1]", "$['a\\'b']", "$.a "]) {
    assert.throws(() => keyReader(path), /is not a valid path to a sharding key: expected/, path);
  }
});

test("addresses are parsed, or refused with an explanation", () => {
  assert.equal(String(parseAddress(" proxy ")), "proxy:9713");
  assert.equal(String(parseAddress("[::1]:19")), "[::1]:19");
  assert.deepEqual(parseAddresses("a:1,b:2").map(String), ["a:1", "b:2"]);
  for (const text of ["", "a:0", "a:65536", "a b", "::1", "a:b"]) {
    assert.throws(() => parseAddress(text), /is not a proxy address: expected host:port/, text);
  }
  assert.throws(() => parseAddresses([]), /no proxy address given/);
});

test("each failure advances the address, and each round the address of a name", () => {
  const servers = new Servers(["a:1", "b:2"]);
  const seen = [];
  for (let i = 0; i < 4; i++, servers.next()) seen.push(`${servers.address} ${servers.round}`);
  assert.deepEqual(seen, ["a:1 0", "b:2 0", "a:1 1", "b:2 1"]);
});

test("frames are assembled from any chunks", () => {
  const bytes = Buffer.concat(
    ["one", "two2", "x"].map((text) => {
      const length = Buffer.alloc(4);
      length.writeInt32BE(text.length);
      return Buffer.concat([length, Buffer.from(text)]);
    }),
  );
  for (let size = 1; size <= bytes.length; size++) {
    const frames = new FrameBuffer();
    const found: string[] = [];
    for (let place = 0; place < bytes.length; place += size) {
      frames.receive(bytes.subarray(place, place + size));
      for (let frame = frames.next(); frame !== null; frame = frames.next()) {
        found.push(frame.toString());
      }
    }
    assert.deepEqual(found, ["one", "two2", "x"]);
  }
});

test("an invalid frame length is a protocol error", () => {
  for (const text of ["HTTP/1.1 400", "\0\0\0\0", "\xff\xff\xff\xff"]) {
    const frames = new FrameBuffer();
    frames.receive(Buffer.from(text, "latin1"));
    assert.throws(() => frames.next(), ProtocolError);
  }
  const frames = new FrameBuffer();
  const length = Buffer.alloc(4);
  length.writeInt32BE(MAX_FRAME_BYTES + 1);
  frames.receive(length);
  assert.throws(() => frames.next(), /is this the Thrift port of an orderlane proxy/);
});

test("64-bit numbers round-trip", () => {
  const numbers = [0, 1, -1, 63, -64, 64, 300, -300, 2 ** 31, -(2 ** 31), 2 ** 52, -(2 ** 52)];
  const all = [...numbers, Number.MAX_SAFE_INTEGER, 1_700_000_000_000];
  const writer = new CompactWriter();
  for (const number of all) writer.writeI64(number);
  const reader = new CompactReader(writer.frame().subarray(4));
  assert.deepEqual(
    all.map(() => reader.readI64()),
    all,
  );
  for (const wrong of [0.5, 2 ** 53, NaN, "7", null]) {
    assert.throws(() => writer.writeI64(wrong), /is not an i64/);
  }
});

const ASKING = { groupId: "g", clientId: "c", token: null };

test("arbitrary bytes make the decoder reject, and nothing else", async () => {
  const context = { groupId: "g", topic: "t", qid: "q" };
  const acks = [{ context, acked: [1, 2 ** 40], nacked: [], released: [] }];
  const { frame } = await makeCall("settle", 1, { ...ASKING, acks });
  const bytes = Buffer.from(frame.subarray(4));
  bytes[1] = (bytes[1]! & 0x1f) | (2 << 5); // as if it were an answer
  let state = 1;
  for (let i = 0; i < 3000; i++) {
    const spoilt = Buffer.from(bytes);
    for (let n = 0; n < 3; n++) {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      spoilt[(state >>> 8) % spoilt.length] = state >>> 24;
    }
    const call = await makeCall("settle", 1, { ...ASKING, acks });
    await call
      .answer(spoilt.subarray(0, 1 + ((state >>> 4) % spoilt.length)), "proxy")
      .catch((error: unknown) => assert.match((error as Error).name, /^(Protocol|Refused|Proxy)/));
  }
});

test("arguments that cannot be encoded are refused before sending", async () => {
  const leases = [{ context: { groupId: null, topic: null, qid: null }, leaseId: 0.5 }];
  await assert.rejects(makeCall("extend", 1, { ...ASKING, leases, ms: 1 }), /0.5 is not an i64/);
});

test("thrown values determine outcomes", () => {
  assert.equal(outcomeName(undefined), "ok");
  assert.equal(outcomeName(new Reject("x")), "reject");
  assert.equal(outcomeName(outcomeOf("a text")), "retry");
  assert.throws(() => new Retry({ afterMs: -1 }), /expected 0 or more/);
});

test("a reason is short and valid text", () => {
  const verdicts = new Verdicts();
  const context = { groupId: "g", topic: "t", qid: "q" };
  const times = { deadlineMs: 2, nowMs: 1 };
  verdicts.add(context, 1, new Reject("\ud800".repeat(300)), times);
  verdicts.add(context, 2, new Error("x".repeat(1000)), times);
  const [batch] = verdicts.batches();
  assert.equal(batch?.nacked[0]?.reason, "\ufffd".repeat(MAX_REASON));
  assert.equal(batch?.nacked[1]?.reason, `Error: ${"x".repeat(MAX_REASON - 7)}`);
});

test("invalid options are refused with an explanation", () => {
  const right = { servers: "a:1", group: "g" };
  const wrong: [object, RegExp][] = [
    [{ group: "" }, /group is empty: expected the name/],
    [{ topics: "orders" }, /topics is "orders": expected a list/],
    [{ topics: [] }, /topics is empty/],
    [{ concurrency: 0 }, /concurrency is 0: expected a whole number, at least 1/],
    [{ prefetch: -1 }, /prefetch is -1/],
    [{ maxRun: 1.5 }, /maxRun is 1.5/],
    [{ drainTimeoutMs: NaN }, /drainTimeoutMs is NaN: expected 0 or more/],
    [{ drainTimeoutMs: Infinity }, /drainTimeoutMs is Infinity: expected at most 2147483647/],
    [{ drainTimeoutMs: 2 ** 31 - 0.5 }, /expected at most 2147483647 milliseconds/],
    [{ servers: "" }, /is not a proxy address/],
    [{ tls: { certFile: "x" } }, /expected both, or neither/],
    [{ tls: { caFile: "missing.pem" } }, /tls: missing.pem: cannot be used as PEM files: ENOENT/],
    [{ tls: { caFile: "package.json" } }, /tls: package.json: cannot be used as PEM files/],
  ];
  for (const [options, sentence] of wrong) {
    assert.throws(() => new Consumer({ ...right, ...options }), sentence);
  }
  assert.equal(readOptions(right).session.prefetch, 8);
  assert.equal(readOptions({ ...right, maxRun: MAX_I32 }).session.prefetch, MAX_I32);
  assert.equal(readOptions({ ...right, concurrency: 2, maxRun: 16 }).session.prefetch, 32);
});

test("files of TLS that became unusable are the reason of a lost connection, not a crash", async () => {
  const closed = parseAddress("127.0.0.1:1");
  const tls = { certFile: "package.json", keyFile: "package.json" };
  await assert.rejects(Connection.open(closed, { timeoutMs: 3_000, tls }), ConnectionLost);
  // By now a socket of the first try would have failed as well, without a listener.
  await assert.rejects(Connection.open(closed, { timeoutMs: 3_000, tls: null }), /ECONNREFUSED/);
});

test("unlimited concurrency pulls as much as a request can ask for", () => {
  new Consumer({ servers: "a:1", group: "g", concurrency: MAX_I32 });
  const { session } = readOptions({ servers: "a:1", group: "g", concurrency: MAX_I32 });
  assert.equal(new Session(session).beginPull(0).maxBatchSize, MAX_I32);
});

test("topics are copied", () => {
  const topics = ["orders"];
  const { session } = readOptions({ servers: "a:1", group: "g", topics });
  topics.length = 0; // no topic would mean all
  assert.deepEqual(new Session(session).beginPull(0).topics, ["orders"]);
});

const SENDING = { token: null, trace: {} };

test("a message is sent to its queue", () => {
  const place = (message: object) => {
    const { wire } = sendable({ topic: "t", body: '{"id": 7}', ...message }, SENDING);
    return [wire.hashId, wire.partitionId];
  };
  assert.deepEqual(place({}), [null, -1]);
  assert.deepEqual(place({ key: "a" }), [97, -1]);
  assert.deepEqual(place({ key: "a", shardingKey: "b" }), [98, -1]);
  assert.deepEqual(place({ key: "a", shardingPath: "$.id" }), [keyHash("7"), -1]);
  assert.deepEqual(place({ key: "a", shardingPath: "$.none" }), [97, -1]);
  assert.deepEqual(place({ key: "a", shardingKey: "b", shardingPath: "$.id" }), [98, -1]);
  assert.deepEqual(place({ key: "a", shardingKey: "b", queue: 3 }), [null, 3]);
  assert.deepEqual(place({ key: "a", queue: "random" }), [null, -2]);
});

test("invalid messages are refused with an explanation", () => {
  const wrong: [object, RegExp][] = [
    [{ topic: "" }, /topic is empty/],
    [{ body: 7 }, /is of type number: expected a string or bytes/],
    [{ key: "\ud800" }, /is not valid text/],
    [{ properties: { a: 7 } }, /is not valid text/],
    [{ queue: -1 }, /queue of a message to t is -1: expected 0 or more, or "random"/],
    [{ shardingPath: "$..x" }, /a message to t cannot be sent: .* is not a valid path to a sharding key/],
    [{ shardingPath: "$.x" }, /a message to t cannot be sent: cannot read \$\.x: the body is not JSON/],
    [{ delayMs: -1 }, /delayMs is -1/],
    [{ body: Buffer.alloc(5_000_000) }, /the limit is 5000000/],
  ];
  for (const [part, sentence] of wrong) {
    assert.throws(() => sendable({ topic: "t", body: "", ...part }, SENDING), sentence);
  }
});

test("the trace is added, but the application's own properties take precedence", () => {
  const trace = { traceparent: "00-1-2-01", tracestate: "x=1" };
  const message = { topic: "t", body: "", properties: { tracestate: "y=2", UNIQ_KEY: "ID" } };
  const { id, wire } = sendable(message, { token: "secret", trace });
  assert.equal(id, "ID");
  assert.equal(wire.token, "secret");
  const { traceparent, tracestate } = wire.properties;
  assert.deepEqual([traceparent, tracestate], ["00-1-2-01", "y=2"]);
});

test("calls made before a failure of their key are held back, later ones are sent", () => {
  const order = new SendOrder();
  const [first, second] = [order.enter(), order.enter()];
  assert.equal(order.heldBack(first, ["x"]), false);
  order.leave(first, ["x"]);
  const third = order.enter();
  assert.equal(order.heldBack(second, ["x"]), true);
  assert.equal(order.heldBack(second, ["y"]), false);
  assert.equal(order.heldBack(third, ["x"]), false);
});

test("a call whose time is up while it waits holds back only the calls behind it", () => {
  const order = new SendOrder();
  const [first, second, third] = [order.enter(), order.enter(), order.enter()];
  order.leave(second, ["x"]);
  const fourth = order.enter();
  assert.deepEqual(
    [first, third, fourth].map((call) => order.heldBack(call, ["x"])),
    [false, true, false],
  );
  order.leave(first, ["x"]);
  assert.deepEqual(
    [third, fourth].map((call) => order.heldBack(call, ["x"])),
    [true, true],
  );
  for (const call of [third, fourth]) order.leave(call);
  assert.equal(order.heldBack(order.enter(), ["x"]), false);
});

test("the clock advances", async () => {
  const before = nowMs();
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.ok(nowMs() > before);
});

test("a closed producer refuses to send", async () => {
  const producer = new Producer({ servers: "127.0.0.1:1" });
  await producer.close();
  await assert.rejects(producer.send({ topic: "t", body: "" }), /the producer is closed/);
});
