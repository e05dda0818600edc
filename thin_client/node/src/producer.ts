/** The producer: sends each message until it is stored, or time is up. */

import { setTimeout as sleep } from "node:timers/promises";
import { Servers } from "./addresses.js";
import { nowMs } from "./clock.js";
import { Connection, type TlsOptions } from "./connection.js";
import { type Delivery, deliveries } from "./delivery.js";
import { ClientError, SendFailed } from "./errors.js";
import type { SendResult } from "./idl.js";
import type { Logger } from "./logger.js";
import type { TraceContext } from "./message.js";
import { duration, type ProxyOptions, readTls } from "./options.js";
import { type Outgoing, sendable } from "./outgoing.js";
import { SendOrder } from "./send-order.js";

export interface ProducerOptions extends ProxyOptions {
  /** How long a send may try. Default 10,000. */
  timeoutMs?: number;
  /** Asked for each message: the trace context that goes with it, if any. */
  trace?: (message: Outgoing) => TraceContext | undefined;
}

export interface SendOptions {
  /** Instead of the producer's own. */
  timeoutMs?: number;
}

/**
 * Sends messages. One is sent again under the same id until it is stored or time is up, so it may
 * be stored twice; consumers can tell by `messageId`. One call at a time goes out, in the order of
 * calling. When one fails, calls that wait behind it with messages of its keys fail too, unsent:
 * what the application sends again is not overtaken. Calls made later go.
 */
export class Producer {
  readonly #servers: Servers;
  readonly #token: string | null;
  readonly #tls: TlsOptions | null;
  readonly #logger: Logger;
  readonly #timeoutMs: number;
  readonly #trace: (message: Outgoing) => TraceContext | undefined;
  readonly #order = new SendOrder();
  #connection: Connection | null = null;
  #turn: Promise<void> = Promise.resolve(); // when the call made last has ended
  #closed = false;

  /** Throws a TypeError or RangeError for options that make no sense. */
  constructor(options: ProducerOptions) {
    const { timeoutMs = 10_000 } = options;
    duration("timeoutMs", timeoutMs);
    this.#servers = new Servers(options.servers);
    this.#token = options.token ?? null;
    this.#tls = readTls(options.tls);
    this.#logger = options.logger ?? console;
    this.#timeoutMs = timeoutMs;
    this.#trace = options.trace ?? (() => undefined);
  }

  /**
   * Store one message; gives its id. Rejects with SendFailed, or with a TypeError or RangeError for
   * what cannot be sent.
   */
  async send(message: Outgoing, options: SendOptions = {}): Promise<string> {
    const [id] = await this.sendBatch([message], options);
    return id as string;
  }

  /**
   * Store messages, those of one sharding key in their order; gives their ids. Rejects as `send`:
   * the error's `failures` name what is not known to be stored, the rest is. Large batches go in
   * several requests; after one that failed none follows.
   */
  async sendBatch(messages: readonly Outgoing[], options: SendOptions = {}): Promise<string[]> {
    if (this.#closed) throw new Error("the producer is closed: make another one");
    const { timeoutMs = this.#timeoutMs } = options;
    duration("timeoutMs", timeoutMs);
    const ready = messages.map((each) =>
      sendable(each, { token: this.#token, trace: this.#trace(each) ?? {} }),
    );
    const requests = deliveries(ready, nowMs() + timeoutMs, this.#logger);
    const number = this.#order.enter();
    const { promise: ended, resolve: end } = withResolvers();
    const turn = this.#turn;
    this.#turn = ended;
    let failed: string[] = [];
    try {
      await turn;
      this.#checkTurn(number, requests);
      for (const request of requests) await this.#deliver(request);
    } catch (error) {
      failed = requests.flatMap((each) => each.keys());
      throw error instanceof SendFailed ? ofWholeCall(error, requests) : error;
    } finally {
      this.#order.leave(failed);
      end();
    }
    return ready.map((each) => each.id);
  }

  /** Wait for the calls made so far, and end the connection. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#turn;
    this.#hangUp();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Throws SendFailed if the call may not go, now that it is its turn. */
  #checkTurn(number: number, requests: readonly Delivery[]): void {
    for (const request of requests) {
      if (this.#order.heldBack(number, request.keys())) {
        throw request.notSent("an earlier send of its key failed while this one waited");
      }
      if (nowMs() > request.deadlineMs) {
        throw request.notSent("its time was up while it waited for earlier sends");
      }
    }
  }

  async #deliver(request: Delivery): Promise<void> {
    for (;;) {
      const pauseMs = await this.#try(request);
      if (pauseMs === null) return;
      await sleep(Math.ceil(pauseMs));
    }
  }

  async #try(request: Delivery): Promise<number | null> {
    const next = request.next(nowMs());
    const { timeoutMs } = next;
    let sent = false;
    let result: SendResult;
    try {
      if (this.#connection === null || this.#connection.closed) {
        const dialling = { timeoutMs, tls: this.#tls };
        const { address, round } = this.#servers;
        this.#connection = await Connection.open(address, dialling, round);
      }
      sent = true;
      const connection = this.#connection;
      if (next.method === "sendSync") {
        result = await connection.call(next.method, timeoutMs, ...next.takes);
      } else if (next.method === "sendDelaySync") {
        result = await connection.call(next.method, timeoutMs, ...next.takes);
      } else {
        result = await connection.call(next.method, timeoutMs, ...next.takes);
      }
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      this.#hangUp();
      this.#servers.next();
      return request.pauseAfterError(error, sent, nowMs(), Math.random());
    }
    return request.pauseAfter(result, nowMs(), Math.random());
  }

  #hangUp(): void {
    this.#connection?.close();
    this.#connection = null;
  }
}

/** The failure of one request, with what became of the call's others. */
function ofWholeCall(error: SendFailed, requests: readonly Delivery[]): SendFailed {
  const unsent = { reason: "not sent: an earlier part failed", code: null, outcomeUnknown: false };
  const failures = new Map(error.failures);
  for (const { id } of requests.flatMap((each) => each.open())) {
    if (!failures.has(id)) failures.set(id, unsent);
  }
  const messageIds = requests.flatMap((each) => each.messages.map(({ id }) => id));
  return new SendFailed(error.message, { code: error.code, failures, messageIds });
}

function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve };
}
