/** What an application sees of a mistake or a failure: one sentence, and its own line. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import types from "#gen/consumer_proxy_types.js";
import { Consumer, type ConsumerOptions, Producer, Puller, Refused, Retry } from "../src/index.js";
import { FakeProxy } from "./fake-proxy.js";

const servers = "127.0.0.1:1";
const logger = { warn() {}, error() {} };
const wrong = <T>(value: unknown): T => value as T;

function consumer(more: object = {}): Consumer {
  return new Consumer({ servers, group: "g", logger, ...more });
}

const MISTAKES: Record<string, [() => unknown, RegExp]> = {
  "no options of a producer": [
    () => new Producer(wrong(undefined)),
    /^the options of a producer: got undefined, expected an object such as \{ servers \}$/,
  ],
  "no options of a consumer": [
    () => new Consumer(wrong(undefined)),
    /^the options of a consumer: got undefined, expected an object/,
  ],
  "options of a puller as text": [
    () => new Puller(wrong("127.0.0.1:9713")),
    /^the options of a puller: got a value of type string, expected an object/,
  ],
  "a misspelt option": [
    () => consumer({ topcis: ["orders"] }),
    /^the options of a consumer: there is no property topcis; expected some of servers, .*topics/,
  ],
  "no message": [
    () => new Producer({ servers }).send(wrong(null)),
    /^a message to send: got null, expected an object such as \{ topic, body \}$/,
  ],
  "a misspelt field, which would cost the order": [
    () => new Producer({ servers }).send(wrong({ topic: "a", body: "b", shardingkey: "c" })),
    /^a message to send: there is no property shardingkey; expected some of topic, body, /,
  ],
  "a batch of one message without a list": [
    () => new Producer({ servers }).sendBatch(wrong({ topic: "a", body: "b" })),
    /^the messages to send: got a value of type object, expected a list$/,
  ],
  "a number instead of options": [
    () => new Producer({ servers }).send({ topic: "a", body: "b" }, wrong(500)),
    /^the options of a send: got a value of type number, expected an object/,
  ],
  "a number instead of a signal": [
    () => consumer().run(() => {}, wrong({ signal: 5 })),
    /^signal is no AbortSignal: expected that of an AbortController$/,
  ],
  "one process signal without a list": [
    () => consumer().run(() => {}, wrong({ stopOn: "SIGTERM" })),
    /^stopOn: got a value of type string, expected a list$/,
  ],
  "a process signal that does not exist": [
    () => consumer().run(() => {}, wrong({ stopOn: ["TERM"] })),
    /^stopOn: there is no signal TERM; expected one as SIGTERM$/,
  ],
  "a number of messages to pull": [
    () => new Puller({ servers, group: "g" }).pull(wrong(5)),
    /^the options of a pull: got a value of type number, expected an object such as \{ max: 10 \}$/,
  ],
  "a time as text": [
    () => new Puller({ servers, group: "g" }).pull({ waitMs: wrong("500") }),
    /^waitMs is "500": expected a number of milliseconds$/,
  ],
  "a time-out as text": [
    () => consumer({ requestTimeoutMs: "3000" }),
    /^requestTimeoutMs is "3000": expected a number of milliseconds$/,
  ],
  "no time-out": [
    () => new Producer({ servers, timeoutMs: wrong(null) }),
    /^timeoutMs is null: expected a number of milliseconds$/,
  ],
  "a time-out of one send as text": [
    () => new Producer({ servers }).send({ topic: "a", body: "" }, { timeoutMs: wrong("500") }),
    /^timeoutMs is "500": expected a number of milliseconds$/,
  ],
  "a delay as text, which would be far in the future": [
    () => new Producer({ servers }).send({ topic: "a", body: "", delayMs: wrong("60000") }),
    /^delayMs is "60000": expected a number of milliseconds$/,
  ],
  "topics of a puller as text, which would be one of each letter": [
    () => new Puller({ servers, group: "g", topics: wrong("orders") }),
    /^topics is "orders": expected a list of names$/,
  ],
  "topics of a puller without a name": [
    () => new Puller({ servers, group: "g", topics: [] }),
    /^topics is empty or contains an empty name: omit it to consume all topics$/,
  ],
  "topics from an iterator": [
    () => consumer({ topics: ["orders"].values() }),
    /^topics is \[object Array Iterator\]: expected a list of names$/,
  ],
  "a number as a topic": [
    () => consumer({ topics: [7] }),
    /^a name in topics is 7: expected text$/,
  ],
  "a hole among topics": [
    () => consumer({ topics: new Array(1) }),
    /^a name in topics is undefined: expected text$/,
  ],
  "a number as the group": [() => consumer({ group: 7 }), /^group is 7: expected text$/],
  "a number as the client id": [
    () => new Puller({ servers, group: "g", clientId: wrong(7) }),
    /^clientId is 7: expected text$/,
  ],
  "bytes as the token, which the error does not show": [
    () => new Producer({ servers, token: wrong(Buffer.from("secret")) }),
    /^token: got a value of type object, expected text$/,
  ],
  "a number as a server": [
    () => new Producer({ servers: wrong([9713]) }),
    /^9713 is not a proxy address: expected host:port, for example proxy:9713$/,
  ],
  "text instead of options of TLS": [
    () => new Producer({ servers, tls: wrong("false") }),
    /^the options of TLS: got a value of type string, expected an object such as \{ caFile \}$/,
  ],
  "a misspelt option of TLS, without which Node's authorities are trusted": [
    () => new Producer({ servers, tls: wrong({ ca: "ca.pem" }) }),
    /^the options of TLS: there is no property ca; expected some of caFile, /,
  ],
  "half a logger": [
    () => consumer({ logger: { warn() {} } }),
    /^error of the logger is undefined: expected a function$/,
  ],
  "a trace that is no function": [
    () => consumer({ trace: {} }),
    /^trace is \[object Object\]: expected a function$/,
  ],
  "a number of milliseconds instead of options of a retry": [
    () => new Retry(wrong(5_000)),
    /^the options of a retry: got a value of type number, expected an object such as/,
  ],
  "a retry after text": [
    () => new Retry({ afterMs: wrong("5") }),
    /^afterMs is "5": expected a number of milliseconds$/,
  ],
  "properties as a map, which would be none": [
    () =>
      new Producer({ servers }).send({
        topic: "a",
        body: "",
        properties: wrong(new Map([["a", "b"]])),
      }),
    /^properties of a message to a: got a list or map, expected an object of texts$/,
  ],
  "a signal that no process receives": [
    () => consumer().run(() => {}, { stopOn: ["SIGKILL"] }),
    /^stopOn: no process receives SIGKILL; expected one as SIGTERM$/,
  ],
  "nothing to settle": [
    () => new Puller({ servers, group: "g" }).settle(wrong(undefined)),
    /^the message to settle or extend is none: expected one that pull returned$/,
  ],
};

for (const [name, [attempt, sentence]] of Object.entries(MISTAKES)) {
  test(`${name}: a TypeError of one sentence`, async () => {
    await assert.rejects(
      async () => attempt(),
      (error: unknown) => {
        assert.ok(error instanceof TypeError, inspect(error));
        assert.match(error.message, sentence);
        return true;
      },
    );
  });
}

test("a pull asks for at least one message: none would mean as many as there are", async () => {
  const puller = new Puller({ servers, group: "g" });
  for (const max of [0, -1, 1.5, NaN, "10"]) {
    await assert.rejects(
      puller.pull({ max: wrong(max) }),
      /^RangeError: max is .*: expected a whole number, at least 1$/,
    );
  }
});

test("an outcome of a puller is an error, and no class of one", async () => {
  await using proxy = await FakeProxy.open();
  const patient = { requestTimeoutMs: 60_000 }; // a machine may stall
  await using puller = new Puller({ servers: proxy.address, group: "g", ...patient });
  proxy.put({ key: "a" });
  const [message] = await puller.pull();
  for (const outcome of ["reject", null, Retry]) {
    await assert.rejects(
      puller.settle(message!, wrong(outcome)),
      /^TypeError: the outcome is .*: expected a Retry, Reject, Defer or other error, or none$/,
    );
  }
  assert.deepEqual(proxy.verdicts, []);
});

test("absent options may be undefined", () => {
  const options: Record<string, unknown> = { servers, group: "g", token: undefined };
  new Consumer(options as unknown as ConsumerOptions);
});

test("a rejection of run shows the application's line", async () => {
  await using proxy = await FakeProxy.open();
  const refusal: unknown = new types.PullException({ code: 404, message: "no such group" });
  proxy.refusal = refusal as Error;
  async function ofTheApplication(): Promise<void> {
    await new Consumer({ servers: proxy.address, group: "g", logger }).run(() => {});
  }
  const error = await ofTheApplication().catch((thrown: unknown) => thrown);
  const shown = inspect(error);

  assert.ok(error instanceof Refused);
  assert.match(shown, /^Refused: .* refused pull: .*no such group/);
  assert.match(shown, /at async ofTheApplication .*rejections\.test/);
  assert.match(shown, /\{\n {2}retriable: false,\n {2}kind: 'refused',\n {2}code: 404\n\}$/);
});

test("a rejection of a single call shows the application's line", async () => {
  async function ofTheApplication(): Promise<void> {
    await new Puller({ servers, group: "g" }).pull();
  }
  const error = await ofTheApplication().catch((thrown: unknown) => thrown);

  assert.match(inspect(error), /^ConnectionLost: no connection to 127\.0\.0\.1:1/);
  assert.match(inspect(error), /at async ofTheApplication .*rejections\.test/);
});
