/** The conformance program's output lines and options. */

import { isUtf8 } from "node:buffer";
import { createInterface } from "node:readline";
import {
  ClientError,
  type Message,
  type ProxyOptions,
  Refused,
  type TlsOptions,
} from "../src/index.js";

export interface Options {
  mode?: "consume" | "produce" | "oneshot";
  servers: string;
  group: string;
  topics?: string[];
  concurrency?: number;
  prefetch?: number;
  max_run?: number;
  client_id?: string;
  ack_linger_ms?: number;
  request_timeout_ms?: number;
  drain_timeout_ms?: number;
  token?: string;
  tls?: { ca?: string; cert?: string; key?: string; server_name?: string };
  form?: "handler" | "batches" | "iterator";
  work_ms?: [number, number];
  quiet?: boolean;
  history?: string;
  node?: string;
  clock_offset_ns?: number;
}

/** One line to the driver. */
export function say(event: string, fields: object = {}): void {
  process.stdout.write(`${JSON.stringify({ e: event, ...fields })}\n`);
}

/** The proxy options of all modes. */
export function proxyOptions({ servers, token, tls }: Options): ProxyOptions {
  const files: Record<keyof TlsOptions, string | undefined> = {
    caFile: tls?.ca,
    certFile: tls?.cert,
    keyFile: tls?.key,
    serverName: tls?.server_name,
  };
  return {
    servers,
    ...given({ token }),
    ...(tls === undefined ? {} : { tls: given(files) }),
    logger: { warn: console.error, error: console.error },
  };
}

/** The members that are present. */
export function given<T extends object>(options: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const present = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as { [K in keyof T]: Exclude<T[K], undefined> };
}

/** A failure as lines show it. */
export function errorOf(error: unknown): object {
  return {
    kind: error instanceof ClientError ? error.kind : "bug",
    code: error instanceof Refused ? error.code : null,
    retriable: error instanceof ClientError && error.retriable,
    text: String(error instanceof Error ? error.message : error),
  };
}

/** A message as lines show it. */
export function messageFields(message: Message): object {
  return {
    topic: message.topic,
    queue: message.queue,
    offset: message.offset,
    lease: message.leaseId,
    key: message.key,
    order_key: orderText(message),
    tag: message.tag,
    properties: message.properties,
    attempt: message.attempt,
    born_at_ms: message.bornAt?.getTime() ?? null,
    message_id: message.messageId,
    left_ms: Math.round(message.msLeft),
    body: message.text(),
  };
}

/** An order key in readable form: text, or hex if it is not text. */
export function orderText({ orderKeyBytes: bytes }: Message): string | null {
  if (bytes === null) return null;
  return isUtf8(bytes) ? bytes.toString() : `0x${bytes.toString("hex")}`;
}

/** The driver's requests, one per line. */
export async function* asked<T>(): AsyncGenerator<T> {
  for await (const line of createInterface({ input: process.stdin })) yield JSON.parse(line) as T;
}
