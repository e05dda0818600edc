/**
 * A sharding key out of a JSON body. Its text is that of the proxy's order keys: the values `1`,
 * `1.0` and `"1"` are one key, since producers in different languages write the same id
 * differently.
 */

const NAME = /\.([\p{L}_][\p{L}\p{N}_-]*)/u;
const STEP = new RegExp(
  `${NAME.source}|\\[(\\d+)\\]|\\['([^'\\\\]*)'\\]|\\["([^"\\\\]*)"\\]`,
  "uy",
);

/** Strings, and whole numbers that may be too long for a double. */
const TOKEN = /"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;
/** How such numbers are marked once they are read as strings. */
const LONG = /^\u0000(-?\d{16,})$/;

/**
 * Finds the text of one value of a body; null: it is not there, or null. Throws a SyntaxError for a
 * body that is no JSON.
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
    let value: unknown;
    try {
      JSON.parse(body); // as it is: what is done to it below must not make it right
    } catch {
      throw new SyntaxError(`the body is no JSON, so ${path} finds nothing in it`);
    }
    value = JSON.parse(
      body.replace(TOKEN, (text) => (text[0] === '"' ? text : `"\\u0000${text}"`)),
    );
    for (const step of steps) {
      if (typeof value !== "object" || value === null) return null;
      if (Array.isArray(value) !== (typeof step === "number") || !Object.hasOwn(value, step)) {
        return null;
      }
      value = (value as Record<string | number, unknown>)[step];
    }
    if (value === null) return null;
    return typeof value === "string" && !LONG.test(value) ? value : canonical(value);
  };
}

/** As JSON, with the names in order; numbers as the proxy writes them. */
function canonical(value: unknown): string {
  if (typeof value === "number") return numberText(value);
  if (typeof value === "string") {
    const digits = LONG.exec(value)?.[1];
    return digits === undefined ? JSON.stringify(value) : longText(digits);
  }
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    const texts = members.map(([name, each]) => `${JSON.stringify(name)}:${canonical(each)}`);
    return `{${texts.join(",")}}`;
  }
  return String(value);
}

function longText(digits: string): string {
  const whole = BigInt(digits);
  return whole >= -(2n ** 63n) && whole < 2n ** 64n ? String(whole) : numberText(Number(digits));
}

function numberText(value: number): string {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 2 ** 63) return String(BigInt(value));
  const written = size >= 2 ** 63 || size < 1e-5 ? value.toExponential() : String(value);
  return written.replace("e+", "e");
}
