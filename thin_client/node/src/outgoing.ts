/** One outgoing message, and its wire form. Pure, except for new ids. */

import { isUtf8 } from "node:buffer";
import { randomBytes } from "node:crypto";
import { checkMs, checkProperties, kindOf, type Names, quoted } from "./arguments.js";
import { textOf } from "./errors.js";
import type { OutgoingDelay, OutgoingMessage } from "./idl.js";
import { keyReader } from "./json-path.js";
import { keyHash, plainKey } from "./key-hash.js";
import { VERSION } from "./options.js";

/** The property that holds a message's unique id, as in RocketMQ. */
export const UNIQUE_ID = "UNIQ_KEY";
/** The proxy's default request limit. */
export const MAX_REQUEST_BYTES = 5_000_000;

/** One message to send. */
export interface Outgoing {
  topic: string;
  /** Bytes are copied at the call. */
  body: string | Uint8Array;
  /** The message key: for searches, and the order key in groups that use KEY. */
  key?: string | undefined;
  /**
   * Sends all messages of one key to one queue, in the order of sending. Default: the value at
   * `shardingPath`, else the key; without any of them, round robin. Surrounding blanks (U+0000 to
   * U+0020) are not part of a key.
   */
  shardingKey?: string | undefined;
  /** The sharding key's place in a JSON body: `$.customer.id`. */
  shardingPath?: string | undefined;
  /**
   * The queue, counted from 0 over the brokers by name, or any; takes precedence over keys. A
   * number that the topic does not have is refused with code 11.
   */
  queue?: number | "random" | undefined;
  tag?: string | undefined;
  /** UNIQ_KEY sets the message's id; by default one is generated. */
  properties?: Readonly<Record<string, string>> | undefined;
  /** Postpones the delivery, in whole seconds. */
  delayMs?: number | undefined;
}

const FIELDS: Names<Outgoing> = {
  topic: true,
  body: true,
  key: true,
  shardingKey: true,
  shardingPath: true,
  queue: true,
  tag: true,
  properties: true,
  delayMs: true,
};

/** The texts of a trace context; what is undefined is absent. Throws a TypeError for other values. */
export function tracedTexts(context: unknown): Record<string, string> {
  const found = new Map<string, string>();
  for (const [name, value] of Object.entries(context ?? {})) {
    if (value === undefined) continue;
    if (typeof value !== "string" || !value.isWellFormed()) {
      throw new TypeError(`${name} of a trace context is ${quoted(value)}: expected text`);
    }
    found.set(name, value);
  }
  return Object.fromEntries(found);
}

/** Throws a TypeError unless it is an object with fields of a message. */
export function checkMessage(message: unknown): asserts message is Outgoing {
  checkProperties("a message to send", message, FIELDS, "{ topic, body }");
}

/** A unique id: 32 upper-case hexadecimal digits. */
export function newMessageId(): string {
  return randomBytes(16).toString("hex").toUpperCase();
}

/** One validated message. */
export interface Sendable {
  readonly id: string;
  readonly wire: OutgoingMessage;
  /** The request for a delayed message. */
  readonly delay: OutgoingDelay | null;
  /** Its scope of order; null: unordered. */
  readonly order: string | null;
  /** An upper estimate of its size on the wire. */
  readonly bytes: number;
}

/** Validate a message. Throws a TypeError or RangeError that says why it cannot be sent. */
export function sendable(
  message: Outgoing,
  { token, trace }: { token: string | null; trace: object },
): Sendable {
  const { topic, key, tag, delayMs } = message;
  if (!topic) throw new TypeError("topic is empty: expected the name of a topic");
  checkDictionary(message.properties, topic);
  const properties = { ...trace, ...message.properties };
  const id = (properties[UNIQUE_ID] ??= newMessageId());
  for (const text of [topic, key, tag]) if (text !== undefined) checkText(text, topic);
  for (const text of Object.entries(properties).flat()) checkText(text, topic);
  const body = bytesOf(message.body, topic);
  const wire: OutgoingMessage = {
    topic,
    key: key ?? null,
    ...placeOf(message, body),
    tags: tag ?? null,
    body,
    version: VERSION,
    properties,
    token,
  };
  const { hashId, partitionId } = wire;
  const place = partitionId >= 0 ? `queue ${partitionId}` : hashId;
  const bytes = sizeOf(wire);
  if (bytes > MAX_REQUEST_BYTES) {
    throw new RangeError(
      `a message to ${topic} has ${bytes} bytes: the limit is ${MAX_REQUEST_BYTES}`,
    );
  }
  return {
    id,
    wire,
    delay: delayMs === undefined ? null : delayed(wire, id, delayMs),
    order: place === null ? null : `${topic}\0${place}`,
    bytes,
  };
}

/** The queue of a message. */
function placeOf(
  { topic, key, shardingKey, shardingPath, queue }: Outgoing,
  body: Buffer,
): { hashId: number | null; partitionId: number } {
  if (queue === "random") return { hashId: null, partitionId: -2 };
  if (queue !== undefined) {
    if (Number.isInteger(queue) && queue >= 0 && queue < 2 ** 31) {
      return { hashId: null, partitionId: queue };
    }
    throw new RangeError(
      `queue of a message to ${topic} is ${queue}: expected 0 or more, or "random"`,
    );
  }
  if (shardingKey !== undefined) checkText(shardingKey, topic);
  const named = shardingKey ?? foundKey(topic, shardingPath, body);
  const chosen = named === null ? plainKey(key ?? "") || null : plainKey(named);
  return { hashId: chosen === null ? null : keyHash(chosen), partitionId: -1 };
}

function foundKey(topic: string, path: string | undefined, body: Buffer): string | null {
  if (path === undefined) return null;
  try {
    return keyReader(path)(isUtf8(body) ? body.toString() : "");
  } catch (error) {
    throw new TypeError(`a message to ${topic} cannot be sent: ${textOf(error)}`);
  }
}

function delayed(wire: OutgoingMessage, id: string, delayMs: number): OutgoingDelay {
  checkMs("delayMs", delayMs);
  const { topic, key, body, tags, version, token } = wire;
  const timestamp = Math.ceil((Date.now() + delayMs) / 1000);
  const once = { action: 1, dmsgtype: 2 } as const;
  const properties = key === null ? wire.properties : { ...wire.properties, KEYS: key };
  return {
    topic,
    body,
    tags,
    ...once,
    timestamp,
    uuid: id,
    version,
    properties,
    token,
  };
}

/** A list or map would be spread into properties with other names, or none. */
function checkDictionary(properties: unknown, topic: string): void {
  if (properties === undefined || properties === null) return;
  if (typeof properties === "object" && !(Symbol.iterator in properties)) return;
  const kind = typeof properties === "object" ? "a list or map" : kindOf(properties);
  throw new TypeError(
    `properties of a message to ${topic}: got ${kind}, expected an object of texts`,
  );
}

function bytesOf(body: unknown, topic: string): Buffer {
  if (typeof body === "string") return Buffer.from(checkText(body, topic));
  if (body instanceof Uint8Array) return Buffer.from(body); // a copy: it may have to wait
  const kind = body === null ? "null" : typeof body;
  throw new TypeError(
    `the body of a message to ${topic} is of type ${kind}: expected a string or bytes`,
  );
}

function checkText(text: unknown, topic: string): string {
  if (typeof text === "string" && text.isWellFormed()) return text;
  const shown = typeof text === "string" ? JSON.stringify(text) : String(text);
  throw new TypeError(`${shown.slice(0, 100)} in a message to ${topic} is not valid text`);
}

function sizeOf({ topic, key, tags, body, properties }: OutgoingMessage): number {
  let size = 128 + body.length;
  for (const text of [topic, key ?? "", tags ?? "", ...Object.entries(properties).flat()]) {
    size += 3 * text.length + 8;
  }
  return size;
}
