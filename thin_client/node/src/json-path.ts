/**
 * A sharding key out of a JSON body. Its text is that of the proxy's order keys: the values `1`,
 * `1.0` and `"1"` are one key, since producers in different languages write the same id
 * differently.
 */

import { plainKey } from "./key-hash.js";

const NAME = /\.([\p{L}_][\p{L}\p{N}_-]*)/u;
const STEP = new RegExp(
  `${NAME.source}|\\[(\\d+)\\]|\\['([^'\\\\]*)'\\]|\\["([^"\\\\]*)"\\]`,
  "uy",
);

/** What a JSON text consists of, spaces before it included: marks, strings, words and numbers. */
const TOKEN = /[ \t\r\n]*([[\]{},:]|"(?:[^"\\]|\\.)*"|[^ \t\r\n[\]{},:"]+)/y;

/** Arrays and objects of a key in one another. */
const MAX_DEPTH = 100;

/** A value: a bigint is a whole number of 64 bits, a number any other one. */
type Json = string | number | bigint | boolean | null | Json[] | Map<string, Json>;

/**
 * Finds the text of one value of a body; null: it is not there, or null. Throws a SyntaxError for a
 * body that is no JSON, and a RangeError for a value that is nested too deep.
 */
export type KeyReader = (body: string) => string | null;

const readers = new Map<string, KeyReader>();

/** The reader of `path`; throws a TypeError on what is no path of names and numbers. */
export function keyReader(path: string): KeyReader {
  let reader = readers.get(path);
  if (reader === undefined) {
    reader = compile(path);
    if (readers.size >= 100) readers.clear(); // paths are few, unless someone makes them up
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
      `${JSON.stringify(path)} is no path to a sharding key: expected names and places alone, such` +
        " as $.order.id or $.lines[0]['order id']",
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

/** The value of a body, numbers to their last digit. */
function read(body: string, path: string): Json {
  try {
    JSON.parse(body); // from here on it is JSON
    return new Reader(body).value();
  } catch (error) {
    const why = error instanceof OutOfRange ? `: ${error.message}` : "";
    throw new SyntaxError(`the body is no JSON, so ${path} finds nothing in it${why}`);
  }
}

/** What JSON allows, and no other reader takes. */
class OutOfRange extends Error {}

/** Reads what is JSON. Of a name that stands twice the last counts. */
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
  throw new OutOfRange(`${token.slice(0, 40)} is a number that no double can hold`);
}

function isWhole64(token: string): boolean {
  if (token.length > 20 || !/^-?\d+$/.test(token)) return false;
  const whole = BigInt(token);
  return whole >= -(2n ** 63n) && whole < 2n ** 64n;
}

/** As JSON, with the names in order of code points; numbers as the proxy writes them. */
function canonical(value: Json, depth: number): string {
  if (typeof value === "number") return numberText(value);
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object" || value === null) return String(value);
  if (depth === 0) {
    throw new RangeError(
      `the sharding key has more than ${MAX_DEPTH} arrays and objects in one another`,
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
  return Buffer.compare(Buffer.from(a), Buffer.from(b)); // UTF-8 has that order
}

/** Whole numbers of 64 bits in full, others in as few digits as name them. */
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
