/** Options of clients. */

import { randomBytes, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import { checkProperties, type Names } from "./arguments.js";
import type { TlsOptions } from "./connection.js";
import { textOf } from "./errors.js";
import type { Logger } from "./logger.js";
import type { Message, TraceContext } from "./message.js";
import type { SessionOptions } from "./session.js";

/** Options of every client of a proxy. */
export interface ProxyOptions {
  /**
   * `host:port` (default port 9713), several separated by commas, or a list; when one fails, the
   * next is tried.
   */
  servers: string | readonly string[];
  /** Authenticates the client; sent with every request. */
  token?: string;
  /** Enable TLS; true: with the authorities that Node trusts. Default: no TLS. */
  tls?: boolean | TlsOptions;
  /** Receives warnings and errors; default: the console. */
  logger?: Logger;
}

export interface ConsumerOptions extends ProxyOptions {
  group: string;
  /** Default: all topics of the group. */
  topics?: readonly string[];
  /** Number of parallel handlers, each with a different key. Default 8. */
  concurrency?: number;
  /**
   * Messages buffered beyond those being handled; 0 leaves them to other clients. Default:
   * `concurrency`.
   */
  prefetch?: number;
  /**
   * Number of consecutive messages of one order key that may arrive together, to be handled in
   * sequence. Default 1. More makes a busy key faster, and the batches of `runBatches` longer.
   */
  maxRun?: number;
  /** Name shown to operators. Default: host, process and a random part. */
  clientId?: string;
  /** How long an ack waits to ride on the next pull. Default 20. */
  ackLingerMs?: number;
  /** Limits the wait for a connection or an answer, beyond a pull's own wait. Default 3,000. */
  requestTimeoutMs?: number;
  /** How long handlers may continue after `stop`. Default 30,000. */
  drainTimeoutMs?: number;
  /** Called around each handler with its message's trace context. */
  trace?: ConsumerTrace;
}

/** Must call `handle` once, and return its result. */
export type ConsumerTrace = (
  context: TraceContext,
  message: Message,
  handle: () => Promise<unknown>,
) => Promise<unknown>;

/** The validated times of a consumer. */
export interface Timing {
  requestTimeoutMs: number;
  drainTimeoutMs: number;
}

/** The options of every client. */
export const PROXY_OPTIONS: Names<ProxyOptions> = {
  servers: true,
  token: true,
  tls: true,
  logger: true,
};

const CONSUMER_OPTIONS: Names<ConsumerOptions> = {
  ...PROXY_OPTIONS,
  group: true,
  topics: true,
  concurrency: true,
  prefetch: true,
  maxRun: true,
  clientId: true,
  ackLingerMs: true,
  requestTimeoutMs: true,
  drainTimeoutMs: true,
  trace: true,
};

/** Validate options. Throws a TypeError or RangeError that says which values are valid. */
export function readOptions(options: ConsumerOptions): { session: SessionOptions; timing: Timing } {
  checkProperties("the options of a consumer", options, CONSUMER_OPTIONS, "{ servers, group }");
  const { group, topics, concurrency = 8, maxRun = 1, ackLingerMs = 20 } = options;
  if (!group) throw new TypeError("group is empty: expected the name of a consumer group");
  if (typeof topics === "string") {
    throw new TypeError(`topics is ${JSON.stringify(topics)}: expected a list of names`);
  }
  if (topics !== undefined && !(topics.length > 0 && topics.every(Boolean))) {
    throw new TypeError("topics is empty or contains an empty name: omit it to consume all topics");
  }
  whole("concurrency", concurrency, 1);
  whole("maxRun", maxRun, 1);
  // With runs: one in progress, and room for the next.
  const { prefetch = maxRun === 1 ? concurrency : Math.max(concurrency, 2 * maxRun) } = options;
  whole("prefetch", prefetch, 0);
  const { requestTimeoutMs = 3_000, drainTimeoutMs = 30_000 } = options;
  for (const [name, value] of Object.entries({ ackLingerMs, requestTimeoutMs, drainTimeoutMs })) {
    duration(name, value);
  }
  const session: SessionOptions = {
    group,
    topics: topics ?? null,
    clientId: options.clientId || defaultClientId(),
    version: VERSION,
    token: options.token ?? null,
    concurrency,
    prefetch,
    ackLingerMs,
    maxRun,
    requestPrefix: `${randomBytes(4).toString("hex")}-`,
  };
  return { session, timing: { requestTimeoutMs, drainTimeoutMs } };
}

/** The TLS options; null: no TLS. */
export function readTls(tls: boolean | TlsOptions | undefined): TlsOptions | null {
  if (tls === undefined || tls === false) return null;
  if (tls === true) return {};
  if ((tls.certFile === undefined) !== (tls.keyFile === undefined)) {
    throw new TypeError("tls has one of certFile and keyFile: expected both, or neither");
  }
  checkFiles(tls);
  return tls;
}

/** Report unusable files now, instead of at each connection. */
function checkFiles({ caFile: ca, certFile: cert, keyFile: key }: TlsOptions): void {
  try {
    if (ca !== undefined) new X509Certificate(readFileSync(ca)); // else all would be refused
    if (cert !== undefined && key !== undefined) {
      createSecureContext({ cert: readFileSync(cert), key: readFileSync(key) });
    }
  } catch (error) {
    const files = [ca, cert, key].filter((file) => file !== undefined).join(", ");
    throw new TypeError(`tls: ${files}: cannot be used as PEM files: ${textOf(error)}`);
  }
}

/** Throws a RangeError unless `value` is a number of milliseconds. */
export function duration(name: string, value: number): void {
  if (!(value >= 0 && value < 2 ** 31)) {
    throw new RangeError(`${name} is ${value}: expected 0 or more milliseconds`);
  }
}

function whole(name: string, value: number, least: number): void {
  if (!(Number.isInteger(value) && value >= least && value < 2 ** 31)) {
    throw new RangeError(`${name} is ${value}: expected a whole number, at least ${least}`);
  }
}

/** `host@process-1f2e`: unique, and shows operators where the client runs. */
export function defaultClientId(): string {
  return `${hostname()}@${process.pid}-${randomBytes(2).toString("hex")}`;
}

/** Name and version of this library, shown in the proxy's statistics. */
export const VERSION = `orderlane-node/${packageVersion()}`;

function packageVersion(): string {
  const text = readFileSync(join(__dirname, "../../package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
