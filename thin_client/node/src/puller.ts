/** Single pulls, settles and extends, for scripts and tests: nothing is automatic. */

import { Servers } from "./addresses.js";
import { checkMs, checkProperties, checkWhole, type Names, quoted } from "./arguments.js";
import { nowMs } from "./clock.js";
import { Connection, type TlsOptions } from "./connection.js";
import { ClientError, ConnectionLost, seenHere } from "./errors.js";
import type { Context, Method, Methods } from "./idl.js";
import { Home, readLeases } from "./leases.js";
import { Message } from "./message.js";
import {
  PROXY_OPTIONS,
  type ProxyOptions,
  readGroup,
  readLogger,
  readTls,
  readToken,
  VERSION,
} from "./options.js";
import type { Outcome } from "./outcome.js";
import { triesElsewhere } from "./retries.js";
import { Verdicts } from "./verdicts.js";

export interface PullerOptions extends ProxyOptions {
  group: string;
  /** Default: all topics of the group. */
  topics?: readonly string[];
  clientId?: string;
  /** Limits the wait for a connection or an answer, beyond a pull's own wait. Default 3,000. */
  requestTimeoutMs?: number;
}

const PULLER_OPTIONS: Names<PullerOptions> = {
  ...PROXY_OPTIONS,
  group: true,
  topics: true,
  clientId: true,
  requestTimeoutMs: true,
};

/** Options of a pull. */
export interface PullOptions {
  /** Maximum number of messages. Default 1. */
  max?: number;
  /** How long to wait for the first message. Default 1,000. */
  waitMs?: number;
}

const PULL_OPTIONS: Names<PullOptions> = { max: true, waitMs: true };

/**
 * Pulls and settles messages of a group call by call. It extends, retries and orders nothing: of
 * the messages pulled, handle those of one `orderKey` one after the other, each within its
 * `msLeft`. Every method may reject with ConnectionLost, Refused, ProxyFault or ProtocolError; the
 * next call reconnects. One call is sent at a time, in the order of calling.
 */
export class Puller {
  readonly #servers: Servers;
  readonly #tls: TlsOptions | null;
  readonly #timeoutMs: number;
  readonly #topics: string[] | null;
  /** Fields of every request. */
  readonly #asking: { groupId: string; clientId: string; token: string | null };
  #connection: Connection | null = null;
  #failures = 0; // consecutive failures of pulls
  #closing = new AbortController(); // ends the calls made before the next close
  #turn: Promise<void> = Promise.resolve(); // the end of the latest call; never rejects

  /** Throws a TypeError or RangeError for invalid options. */
  constructor(options: PullerOptions) {
    checkProperties("the options of a puller", options, PULLER_OPTIONS, "{ servers, group }");
    const { requestTimeoutMs = 3_000 } = options;
    checkMs("requestTimeoutMs", requestTimeoutMs);
    const { group: groupId, topics, clientId } = readGroup(options);
    readLogger(options.logger); // checks it: a puller logs nothing
    this.#servers = new Servers(options.servers);
    this.#tls = readTls(options.tls);
    this.#timeoutMs = requestTimeoutMs;
    this.#topics = topics;
    this.#asking = { groupId, clientId, token: readToken(options.token) };
  }

  /** Pull up to `max` messages, waiting up to `waitMs` for the first; possibly none. */
  async pull(options: PullOptions = {}): Promise<Message[]> {
    checkProperties("the options of a pull", options, PULL_OPTIONS, "{ max: 10 }");
    const { max = 1, waitMs = 1_000 } = options;
    checkWhole("max", max, 1);
    checkMs("waitMs", waitMs);
    const request: Methods["pull"]["takes"][0] = {
      ...this.#asking,
      topics: this.#topics,
      maxBatchSize: max,
      maxLingerTime: Math.floor(waitMs),
      version: VERSION,
      manyQueues: true,
      acks: null,
      requestId: null,
      maxRun: null,
    };
    const { signal } = this.#closing;
    const called = this.#call("pull", this.#timeoutMs + waitMs, request);
    const { answer: response, sentMs } = await called.catch((error: unknown) => {
      const stays = !(error instanceof ClientError) || error.leavesConnection || signal.aborted;
      // Settles and extends do not go elsewhere: other proxies lack the leases.
      if (!stays && triesElsewhere(error, ++this.#failures)) this.#servers.next();
      throw error;
    });
    this.#failures = 0;
    const home = new Home(response.home);
    const lengths = { sentMs, lengthMs: response.leaseMs ?? 0 };
    return [response, ...(response.more ?? [])].flatMap((part) =>
      readLeases(part, home, lengths).map((lease) => lease.message),
    );
  }

  /**
   * Ack a message; Retry, Reject and Defer give other outcomes. False: its lease had expired, and
   * another client may have the message.
   */
  async settle(message: Message, outcome?: Outcome): Promise<boolean> {
    checkPulled(message);
    if (outcome !== undefined && !((outcome as unknown) instanceof Error)) {
      throw new TypeError(
        `the outcome is ${quoted(outcome)}: expected a Retry, Reject, Defer or other error, or none`,
      );
    }
    const verdicts = new Verdicts();
    const { leaseId, deadlineMs } = message;
    verdicts.add(this.#context(message), leaseId, outcome, { deadlineMs, nowMs: nowMs() });
    const acks = verdicts.batches();
    const { answer } = await this.#call("settle", this.#timeoutMs, { ...this.#asking, acks });
    return !answer.notHeld?.length;
  }

  /**
   * Make the lease expire `ms` from now, at most one visibility timeout; false: it had expired.
   * `msLeft` counts from before the request; the proxy may cap it further without reporting that.
   */
  async extend(message: Message, ms: number): Promise<boolean> {
    checkPulled(message);
    checkMs("ms", ms, { least: 1 }); // with 0 the proxy would end the lease
    const leases = [{ context: this.#context(message), leaseId: message.leaseId }];
    const request = { ...this.#asking, leases, ms: Math.floor(ms) };
    const { answer, sentMs } = await this.#call("extend", this.#timeoutMs, request);
    if (answer.notHeld?.length) {
      message.leaseLost = true;
      return false;
    }
    message.deadlineMs = sentMs + ms;
    return true;
  }

  /** Close the connection, so that calls not yet answered fail; another call opens a new one. */
  close(): void {
    this.#closing.abort();
    this.#closing = new AbortController();
    this.#connection?.close();
    this.#connection = null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #context({ topic, queue: qid }: Message): Context {
    return { groupId: this.#asking.groupId, topic, qid };
  }

  async #connected(signal: AbortSignal): Promise<Connection> {
    const dialling = { timeoutMs: this.#timeoutMs, tls: this.#tls, signal };
    for (let left = this.#servers.count; ; left--) {
      if (signal.aborted) throw new ConnectionLost("the puller was closed before the request");
      if (this.#connection?.closed === false) return this.#connection;
      const { address, round } = this.#servers;
      try {
        const opened = await Connection.open(address, dialling, round);
        if (signal.aborted) opened.close();
        else this.#connection = opened;
      } catch (error) {
        if (signal.aborted) continue;
        this.#servers.next();
        if (!(error instanceof ConnectionLost) || left <= 1) throw error;
      }
    }
  }

  /** Send after earlier calls have ended; also returns the time of sending. */
  async #call<M extends Method>(
    method: M,
    timeoutMs: number,
    ...takes: Methods[M]["takes"]
  ): Promise<Called<M>> {
    const { signal } = this.#closing;
    const turn = this.#turn;
    let end = (): void => {};
    this.#turn = new Promise((resolve) => (end = resolve));
    try {
      await turn;
      return await this.#callInTurn(signal, method, timeoutMs, ...takes);
    } catch (error) {
      throw error instanceof ClientError ? seenHere(error) : error;
    } finally {
      end();
    }
  }

  async #callInTurn<M extends Method>(
    signal: AbortSignal,
    method: M,
    timeoutMs: number,
    ...takes: Methods[M]["takes"]
  ): Promise<Called<M>> {
    const connection = await this.#connected(signal);
    const sentMs = nowMs();
    try {
      return { answer: await connection.call(method, timeoutMs, ...takes), sentMs };
    } catch (error) {
      if (!(error instanceof ClientError && error.leavesConnection)) this.#connection = null;
      throw error;
    }
  }
}

function checkPulled(message: unknown): void {
  if (message instanceof Message) return;
  throw new TypeError("the message to settle or extend is none: expected one that pull returned");
}

interface Called<M extends Method> {
  answer: Methods[M]["gives"];
  sentMs: number;
}
