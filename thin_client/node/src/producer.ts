/** The producer: sends each message until it is stored or time is up. */

import { setTimeout as sleep } from "node:timers/promises";
import { Servers } from "./addresses.js";
import { checkFunction, checkList, checkMs, checkProperties, type Names } from "./arguments.js";
import { nowMs } from "./clock.js";
import { Connection, type TlsOptions } from "./connection.js";
import { type Delivery, deliveries } from "./delivery.js";
import { ClientError, SendFailed } from "./errors.js";
import type { SendResult } from "./idl.js";
import type { Logger } from "./logger.js";
import type { TraceContext } from "./message.js";
import { PROXY_OPTIONS, type ProxyOptions, readLogger, readTls, readToken } from "./options.js";
import { checkMessage, type Outgoing, sendable, tracedTexts } from "./outgoing.js";
import { SendOrder } from "./send-order.js";

export interface ProducerOptions extends ProxyOptions {
  /** Limits a send, including the wait for earlier ones. Default 10,000. */
  timeoutMs?: number;
  /** Returns the trace context of a message, if any. */
  trace?: (message: Outgoing) => TraceContext | undefined;
}

export interface SendOptions {
  /** Overrides the producer's limit. */
  timeoutMs?: number;
}

const PRODUCER_OPTIONS: Names<ProducerOptions> = {
  ...PROXY_OPTIONS,
  timeoutMs: true,
  trace: true,
};
const SEND_OPTIONS: Names<SendOptions> = { timeoutMs: true };

/**
 * Sends messages. A message is resent under the same id until it is stored or time is up, so it may
 * be stored twice; consumers recognize duplicates by `messageId`. One call is sent at a time, in
 * the order of calling. When a call fails, calls already waiting with messages of the same keys
 * fail too, unsent, so they cannot overtake a message that the application sends again. Later calls
 * are sent.
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
  #turn: Promise<void> = Promise.resolve(); // settles when the latest call has ended
  #closed = false;

  /** Throws a TypeError or RangeError for invalid options. */
  constructor(options: ProducerOptions) {
    checkProperties("the options of a producer", options, PRODUCER_OPTIONS, "{ servers }");
    const { timeoutMs = 10_000 } = options;
    const trace = options.trace ?? (() => undefined);
    checkMs("timeoutMs", timeoutMs);
    checkFunction("trace", trace);
    this.#servers = new Servers(options.servers);
    this.#token = readToken(options.token);
    this.#tls = readTls(options.tls);
    this.#logger = readLogger(options.logger);
    this.#timeoutMs = timeoutMs;
    this.#trace = trace;
  }

  /**
   * Store one message; resolves to its id. Rejects with SendFailed, or with a TypeError or
   * RangeError for an invalid message.
   */
  async send(message: Outgoing, options: SendOptions = {}): Promise<string> {
    const [id] = await this.sendBatch([message], options);
    return id as string;
  }

  /**
   * Store messages, those of one sharding key in order; resolves to their ids. Rejects as `send`:
   * the error's `failures` are the messages not known to be stored; the rest is stored. Large
   * batches take several requests; none is sent after one that failed.
   */
  async sendBatch(messages: readonly Outgoing[], options: SendOptions = {}): Promise<string[]> {
    if (this.#closed) throw new Error("the producer is closed: create a new one");
    checkList("the messages to send", messages);
    checkProperties("the options of a send", options, SEND_OPTIONS, "{ timeoutMs: 2000 }");
    const { timeoutMs = this.#timeoutMs } = options;
    checkMs("timeoutMs", timeoutMs);
    const ready = messages.map((each) => {
      checkMessage(each);
      return sendable(each, { token: this.#token, trace: this.#traced(each) });
    });
    const requests = deliveries(ready, nowMs() + timeoutMs, this.#logger);
    if (requests.length === 0) return [];
    const number = this.#order.enter();
    const { promise: ended, resolve: end } = withResolvers();
    const turn = this.#turn;
    this.#turn = ended;
    let failed: string[] = [];
    try {
      await this.#reachTurn(turn, number, requests);
      for (const request of requests) await this.#deliver(request);
    } catch (error) {
      failed = requests.flatMap((each) => each.keys());
      throw error instanceof SendFailed ? ofWholeCall(error, requests) : error;
    } finally {
      this.#order.leave(number, failed);
      void turn.then(end); // also if it did not wait for its turn: the next call still must
    }
    return ready.map((each) => each.id);
  }

  /** Wait for earlier calls, and close the connection. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#turn;
    this.#hangUp();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #traced(message: Outgoing): TraceContext {
    try {
      return tracedTexts(this.#trace(message));
    } catch (error) {
      // A fault of tracing must not prevent a send.
      this.#logger.error("orderlane: the trace hook failed", error);
      return {};
    }
  }

  /** Wait for the call's turn; rejects with SendFailed if the call must not be sent. */
  async #reachTurn(
    turn: Promise<void>,
    number: number,
    requests: readonly Delivery[],
  ): Promise<void> {
    const [{ deadlineMs }] = requests as [Delivery]; // that of all of them
    const isIts = await settlesWithin(turn, deadlineMs - nowMs());
    for (const request of requests) {
      if (isIts && this.#order.heldBack(number, request.keys())) {
        throw request.notSent("an earlier send of its key failed while this one waited");
      }
      if (!isIts || nowMs() > deadlineMs) {
        throw request.notSent("timed out while waiting for earlier sends");
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

/** The failure of one request, extended to the call's other messages. */
function ofWholeCall(error: SendFailed, requests: readonly Delivery[]): SendFailed {
  const reason = "not sent: an earlier part of the batch failed";
  const unsent = { reason, code: null, outcomeUnknown: false };
  const failures = new Map(error.failures);
  for (const { id } of requests.flatMap((each) => each.open())) {
    if (!failures.has(id)) failures.set(id, unsent);
  }
  const messageIds = requests.flatMap((each) => each.messages.map(({ id }) => id));
  return new SendFailed(error.message, { code: error.code, failures, messageIds });
}

/** False if the time is over before the promise is fulfilled. */
function settlesWithin(promise: Promise<void>, limitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), Math.ceil(limitMs));
    void promise.then(() => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}

function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve };
}
