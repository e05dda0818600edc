/** The modes `produce` and `oneshot` of the conformance program. */

import {
  Defer,
  keyHash,
  type Message,
  type Outcome,
  type Outgoing,
  Producer,
  Puller,
  Reject,
  Retry,
  SendFailed,
} from "../src/index.js";
import {
  asked,
  errorOf,
  given,
  messageFields,
  type Options,
  proxyOptions,
  say,
} from "./conformance-lines.js";

interface AskedMessage {
  topic: string;
  body: string;
  key?: string | null;
  sharding_key?: string | null;
  sharding_path?: string | null;
  queue?: number | "random" | null;
  tag?: string | null;
  properties?: Record<string, string> | null;
  delay_ms?: number | null;
}

type AskedCall =
  | { op: "hash"; key: string }
  | {
      op: "send";
      messages: AskedMessage[];
      batch?: boolean;
      timeout_ms?: number;
      /** A child must make its own producer: Node cannot fork, `cluster` starts a new process. */
      process?: "child";
    };

function outgoing(message: AskedMessage): Outgoing {
  return {
    topic: message.topic,
    body: message.body,
    key: message.key ?? undefined,
    shardingKey: message.sharding_key ?? undefined,
    shardingPath: message.sharding_path ?? undefined,
    queue: message.queue ?? undefined,
    tag: message.tag ?? undefined,
    properties: message.properties ?? undefined,
    delayMs: message.delay_ms ?? undefined,
  };
}

/** The result of each message of one call. */
async function sent(
  producer: Producer,
  messages: AskedMessage[],
  timeoutMs: number | undefined,
): Promise<object[]> {
  const options = given({ timeoutMs });
  try {
    const [first] = messages;
    const ids =
      messages.length === 1 && first !== undefined
        ? [await producer.send(outgoing(first), options)]
        : await producer.sendBatch(messages.map(outgoing), options);
    return ids.map((id) => ({ message_id: id, error: null, code: null, unknown: false }));
  } catch (error) {
    if (error instanceof SendFailed) {
      return error.messageIds.map((id) => {
        const failure = error.failures.get(id);
        return {
          message_id: id,
          error: failure?.reason ?? null,
          code: failure?.code ?? null,
          unknown: failure?.outcomeUnknown ?? false,
        };
      });
    }
    return messages.map(({ properties }) => ({
      message_id: properties?.["UNIQ_KEY"] ?? null,
      error: String(error),
      code: null,
      unknown: false,
    }));
  }
}

/** Send the driver's requests until the input ends. */
export async function produce(options: Options): Promise<number> {
  const producer = new Producer(proxyOptions(options));
  const child = new Producer(proxyOptions(options));
  for await (const call of asked<AskedCall>()) {
    if (call.op === "hash") {
      say("hash", { hash: keyHash(call.key) });
      continue;
    }
    const calls = call.batch ? [call.messages] : call.messages.map((each) => [each]);
    const results: object[] = [];
    const from = call.process === "child" ? child : producer;
    for (const each of calls) results.push(...(await sent(from, each, call.timeout_ms)));
    say("sent", { results });
  }
  await producer.close();
  await child.close();
  say("stopped", { error: null });
  return 0;
}

type AskedOne =
  | { op: "pull"; max: number; wait_ms: number }
  | { op: "settle"; lease: number; do?: string; after_ms?: number; reason?: string }
  | { op: "extend"; lease: number; ms: number };

function outcomeOf(call: { do?: string; after_ms?: number; reason?: string }): Outcome {
  if (call.do === "retry") return new Retry({ afterMs: call.after_ms });
  if (call.do === "reject") return new Reject(call.reason);
  return call.do === "defer" ? new Defer() : undefined;
}

/** Pull, settle and extend as the driver requests, until the input ends. */
export async function oneshot(options: Options): Promise<number> {
  const puller = new Puller({
    ...proxyOptions(options),
    group: options.group,
    ...given({
      topics: options.topics,
      clientId: options.client_id,
      requestTimeoutMs: options.request_timeout_ms,
    }),
  });
  const pulled = new Map<number, Message>();
  for await (const call of asked<AskedOne>()) {
    try {
      if (call.op === "pull") {
        const messages = await puller.pull({ max: call.max, waitMs: call.wait_ms });
        for (const message of messages) pulled.set(message.leaseId, message);
        say("pulled", { messages: messages.map(messageFields) });
        continue;
      }
      const message = pulled.get(call.lease) as Message;
      if (call.op === "settle")
        say("settled", { held: await puller.settle(message, outcomeOf(call)) });
      else say("extended", { held: await puller.extend(message, call.ms) });
    } catch (error) {
      say("error", errorOf(error));
    }
  }
  puller.close();
  say("stopped", { error: null });
  return 0;
}
