/** Options of clients. */

import { randomBytes, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import {
  checkFunction,
  checkMs,
  checkProperties,
  checkString,
  checkWhole,
  kindOf,
  MAX_I32,
  type Names,
  quoted,
} from "./arguments.js";
import type { TlsOptions } from "./connection.js";
import { textOf } from "./errors.js";
import { guarded, type Logger } from "./logger.js";
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
  const { concurrency = 8, maxRun = 1, ackLingerMs = 20 } = options;
  const reading = readGroup(options);
  checkWhole("concurrency", concurrency, 1);
  checkWhole("maxRun", maxRun, 1);
  // With runs: one in progress, and room for the next.
  const room = maxRun === 1 ? concurrency : Math.max(concurrency, 2 * maxRun);
  const { prefetch = Math.min(room, MAX_I32) } = options;
  checkWhole("prefetch", prefetch, 0);
  const { requestTimeoutMs = 3_000, drainTimeoutMs = 30_000 } = options;
  for (const [name, value] of Object.entries({ ackLingerMs, requestTimeoutMs, drainTimeoutMs })) {
    checkMs(name, value);
  }
  checkFunction("trace", options.trace ?? (() => {}));
  const session: SessionOptions = {
    ...reading,
    version: VERSION,
    token: readToken(options.token),
    concurrency,
    prefetch,
    ackLingerMs,
    maxRun,
    requestPrefix: `${randomBytes(4).toString("hex")}-`,
  };
  return { session, timing: { requestTimeoutMs, drainTimeoutMs } };
}

/** Validate the names of a consumer or puller; topics null: all topics of the group. */
export function readGroup({
  group,
  topics,
  clientId,
}: Pick<ConsumerOptions, "group" | "topics" | "clientId">): {
  group: string;
  topics: string[] | null;
  clientId: string;
} {
  if (!group) throw new TypeError("group is empty: expected the name of a consumer group");
  checkString("group", group);
  if (clientId) checkString("clientId", clientId);
  return { group, topics: readTopics(topics), clientId: clientId || defaultClientId() };
}

/** A copy, since the application may change its list. */
function readTopics(topics: unknown): string[] | null {
  if (topics === undefined || topics === null) return null;
  if (!Array.isArray(topics)) {
    throw new TypeError(`topics is ${quoted(topics)}: expected a list of names`);
  }
  const names = Array.from<unknown>(topics);
  if (names.length === 0 || names.includes("")) {
    throw new TypeError("topics is empty or contains an empty name: omit it to consume all topics");
  }
  return names.map((name) => {
    checkString("a name in topics", name);
    return name;
  });
}

/** The token; null: none. An error does not show it. */
export function readToken(token: unknown): string | null {
  if (token === undefined || token === null) return null;
  if (typeof token === "string") return token;
  throw new TypeError(`token: got ${kindOf(token)}, expected text`);
}

/** The logger, whose errors are ignored. */
export function readLogger(logger: Logger | undefined): Logger {
  const given = logger ?? console;
  for (const level of ["warn", "error"] as const) {
    checkFunction(`${level} of the logger`, given[level]);
  }
  return guarded(given);
}

const TLS_OPTIONS: Names<TlsOptions> = {
  caFile: true,
  certFile: true,
  keyFile: true,
  serverName: true,
};

/** The TLS options; null: no TLS. */
export function readTls(tls: boolean | TlsOptions | undefined): TlsOptions | null {
  if (tls === undefined || tls === false) return null;
  if (tls === true) return {};
  checkProperties("the options of TLS", tls, TLS_OPTIONS, "{ caFile }");
  if (tls.serverName !== undefined) checkString("serverName", tls.serverName);
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

/** `host@process-1f2e`: unique, and shows operators where the client runs. */
function defaultClientId(): string {
  return `${hostname()}@${process.pid}-${randomBytes(2).toString("hex")}`;
}

/** Name and version of this library, shown in the proxy's statistics. */
export const VERSION = `orderlane-node/${packageVersion()}`;

function packageVersion(): string {
  const text = readFileSync(join(__dirname, "../../package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
