/** What a consumer can be told. */

import { randomBytes, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { createSecureContext } from "node:tls";
import type { TlsOptions } from "./connection.js";
import { textOf } from "./errors.js";
import type { Logger } from "./logger.js";
import type { Message, TraceContext } from "./message.js";
import type { SessionOptions } from "./session.js";

/** What every client of a proxy can be told. */
export interface ProxyOptions {
  /**
   * `host:port` (9713 if absent), several separated by commas, or a list: the next when one fails.
   */
  servers: string | readonly string[];
  /** Who is asking; goes with every request. */
  token?: string;
  /** Secure connections; true: with the authorities that Node trusts. Default: in the clear. */
  tls?: boolean | TlsOptions;
  /** Where warnings go; default: the console. */
  logger?: Logger;
}

export interface ConsumerOptions extends ProxyOptions {
  group: string;
  /** Absent: every topic of the group. */
  topics?: readonly string[];
  /** Handlers at work at a time, each with another key. Default 8. */
  concurrency?: number;
  /** Messages that wait here meanwhile; 0 leaves them to other clients. Default: `concurrency`. */
  prefetch?: number;
  /**
   * So many consecutive messages of one order key may come together, to be handled one after the
   * other. Default 1. More makes a busy key faster, and the batches of `runBatches` longer.
   */
  maxRun?: number;
  /** Shown to operators. Default: host, process and a random part. */
  clientId?: string;
  /** How long an ack waits for the next pull to ride on. Default 20. */
  ackLingerMs?: number;
  /** How long to wait for a connection or an answer, beside a pull's own wait. Default 3,000. */
  requestTimeoutMs?: number;
  /** How long handlers may go on after `stop`. Default 30,000. */
  drainTimeoutMs?: number;
  /** Called around each handler with the trace context that came with its message. */
  trace?: ConsumerTrace;
}

/** Has to call `handle` once, and to return what it gives. */
export type ConsumerTrace = (
  context: TraceContext,
  message: Message,
  handle: () => Promise<unknown>,
) => Promise<unknown>;

/** The numbers of a consumer, checked. */
export interface Timing {
  requestTimeoutMs: number;
  drainTimeoutMs: number;
}

/** Check what the application gave. Throws a TypeError or RangeError that says what is right. */
export function readOptions(options: ConsumerOptions): { session: SessionOptions; timing: Timing } {
  const { group, topics, concurrency = 8, maxRun = 1, ackLingerMs = 20 } = options;
  if (!group) throw new TypeError("group is empty: expected the name of a consumer group");
  if (typeof topics === "string") {
    throw new TypeError(`topics is ${JSON.stringify(topics)}: expected a list of names`);
  }
  if (topics !== undefined && !(topics.length > 0 && topics.every(Boolean))) {
    throw new TypeError("topics is empty, or a name in it is; leave it out for every topic");
  }
  whole("concurrency", concurrency, 1);
  whole("maxRun", maxRun, 1);
  // With runs: one at work, and room for the next.
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

/** The options of `tls`; null: in the clear. */
export function readTls(tls: boolean | TlsOptions | undefined): TlsOptions | null {
  if (tls === undefined || tls === false) return null;
  if (tls === true) return {};
  if ((tls.certFile === undefined) !== (tls.keyFile === undefined)) {
    throw new TypeError("tls has one of certFile and keyFile: expected both, or neither");
  }
  checkFiles(tls);
  return tls;
}

/** Whether the files can be used is told now, and not at each connection for ever. */
function checkFiles({ caFile: ca, certFile: cert, keyFile: key }: TlsOptions): void {
  try {
    if (ca !== undefined) new X509Certificate(readFileSync(ca)); // else nobody would be trusted
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

/** `host@process-1f2e`: unique, and says to an operator where to look. */
export function defaultClientId(): string {
  return `${hostname()}@${process.pid}-${randomBytes(2).toString("hex")}`;
}

/** Name and version of this library, as the proxy's statistics show it. */
export const VERSION = `orderlane-node/${packageVersion()}`;

function packageVersion(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
