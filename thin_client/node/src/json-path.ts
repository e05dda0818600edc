/**
 * Reads a sharding key from a JSON body. Its text is the same as for the proxy's order keys: the
 * values `1`, `1.0` and `"1"` are one key, because producers in different languages write the same
 * id differently.
 */

import { plainKey } from "./key-hash.js";

const NAME = /\.([\p{L}_][\p{L}\p{N}_-]*)/u;
const STEP = new RegExp(
  `${NAME.source}|\\[(\\d+)\\]|\\['([^'\\\\]*)'\\]|\\["([^"\\\\]*)"\\]`,
  "uy",
);

/** One JSON token, including spaces before it: a mark, string, word or number. */
const TOKEN = /[ \t\r\n]*([[\]{},:]|"(?:[^"\\]|\\.)*"|[^ \t\r\n[\]{},:"]+)/y;

/** Limits nested arrays and objects in a key. */
const MAX_DEPTH = 100;

/** A value: 64-bit integers are bigint, all other numbers number. */
type Json = string | number | bigint | boolean | null | Json[] | Map<string, Json>;

/**
 * Finds the text of one value in a body; null: missing, or null. Throws a SyntaxError if the body
 * is not JSON, and a RangeError if the value is nested too deeply.
 */
export type KeyReader = (body: string) => string | null;

const readers = new Map<string, KeyReader>();

/** The reader of `path`; throws a TypeError unless it is a path of names and indexes. */
export function keyReader(path: string): KeyReader {
  let reader = readers.get(path);
  if (reader === undefined) {
    reader = compile(path);
    if (readers.size >= 100) readers.clear(); // paths are few, unless they are generated
    readers.set(path, reader);
  }
  return reader;
}

function compile(path: string): KeyReader {
  const steps: (string | number)[] = [];
  let place = path.startsWith("$") ? 1 : path.length;
  for (STEP.lastIndex = place; place < path.length; place = STEP.lastIndex) {
    const [step, name, number, single, double] = STEP.exec(path) ?? [];
    if (step === undefined) break;
    steps.push(number === undefined ? (name ?? single ?? double ?? "") : Number(number));
  }
  if (steps.length === 0 || place < path.length) {
    throw new TypeError(
      `${JSON.stringify(path)} is not a valid path to a sharding key: expected names and indexes,` +
        " such as $.order.id or $.lines[0]['order id']",
    );
  }
  return (body) => {
    let value: Json | undefined = read(body, path);
    for (const step of steps) {
      if (value instanceof Map && typeof step === "string") value = value.get(step);
      else if (Array.isArray(value) && typeof step === "number") value = value[step];
      else return null;
    }
    if (value === null || value === undefined) return null;
    return typeof value === "string" ? plainKey(value) : canonical(value, MAX_DEPTH);
  };
}

/** Parse a body, with exact numbers. */
function read(body: string, path: string): Json {
  try {
    JSON.parse(body); // valid JSON from here on
    return new Reader(body).value();
  } catch (error) {
    const why = error instanceof OutOfRange ? `: ${error.message}` : "";
    throw new SyntaxError(`cannot read ${path}: the body is not JSON${why}`);
  }
}

/** Allowed by JSON, but refused by all readers. */
class OutOfRange extends Error {}

/** Reads valid JSON. The last of several equal names counts. */
class Reader {
  #place = 0;

  constructor(private readonly body: string) {}

  value(): Json {
    return this.#from(this.#next());
  }

  #next(): string {
    TOKEN.lastIndex = this.#place;
    const token = TOKEN.exec(this.body)![1]!;
    this.#place = TOKEN.lastIndex;
    return token;
  }

  #from(token: string): Json {
    switch (token[0]) {
      case "[":
        return this.#array();
      case "{":
        return this.#object();
      case '"':
        return wellFormed(JSON.parse(token) as string);
      case "t":
        return true;
      case "f":
        return false;
      case "n":
        return null;
    }
    return numberOf(token);
  }

  #array(): Json[] {
    const elements: Json[] = [];
    for (let token = this.#next(); token !== "]"; token = this.#next()) {
      if (token !== ",") elements.push(this.#from(token));
    }
    return elements;
  }

  #object(): Map<string, Json> {
    const members = new Map<string, Json>();
    for (let token = this.#next(); token !== "}"; token = this.#next()) {
      if (token === ",") continue;
      const name = wellFormed(JSON.parse(token) as string);
      this.#next(); // the colon
      members.set(name, this.value());
    }
    return members;
  }
}

function wellFormed(text: string): string {
  if (text.isWellFormed()) return text;
  throw new OutOfRange("a string holds half a surrogate pair");
}

function numberOf(token: string): number | bigint {
  const value = Number(token);
  if (Number.isFinite(value)) return isWhole64(token) ? BigInt(token) : value;
  throw new OutOfRange(`the number ${token.slice(0, 40)} exceeds the range of a double`);
}

function isWhole64(token: string): boolean {
  if (token.length > 20 || !/^-?\d+$/.test(token)) return false;
  const whole = BigInt(token);
  return whole >= -(2n ** 63n) && whole < 2n ** 64n;
}

/** Write JSON with names in code point order, and numbers as the proxy writes them. */
function canonical(value: Json, depth: number): string {
  if (typeof value === "number") return numberText(value);
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object" || value === null) return String(value);
  if (depth === 0) {
    throw new RangeError(
      `the sharding key nests more than ${MAX_DEPTH} arrays and objects`,
    );
  }
  if (Array.isArray(value)) return `[${value.map((each) => canonical(each, depth - 1)).join(",")}]`;
  const members = [...value].sort(([a], [b]) => byCodePoint(a, b));
  const texts = members.map(([name, each]) => {
    return `${JSON.stringify(name)}:${canonical(each, depth - 1)}`;
  });
  return `{${texts.join(",")}}`;
}

function byCodePoint(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b)); // UTF-8 preserves that order
}

/** 64-bit integers in full, other numbers in the fewest digits that round-trip. */
function numberText(value: number): string {
  if (Number.isInteger(value) && value >= -(2 ** 63) && value < 2 ** 64) {
    return String(BigInt(value));
  }
  const size = Math.abs(value);
  if (size >= 2 ** 63 || size < 1e-5) return value.toExponential();
  return size < 1e-4 ? plainly(value) : String(value);
}

/** A number below 0.0001 without an exponent. */
function plainly(value: number): string {
  const [mantissa, power] = value.toExponential().split("e") as [string, string];
  const digits = mantissa.replace(/[-.]/g, "");
  return `${value < 0 ? "-" : ""}0.${"0".repeat(-Number(power) - 1)}${digits}`;
}
