/** What an application sees of a mistake or a failure: one sentence, and its own line. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import types from "#gen/consumer_proxy_types.js";
import { Consumer, type ConsumerOptions, Producer, Puller, Refused } from "../src/index.js";
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
