/** Checks what applications pass, so that a mistake is one sentence and no failure inside. Pure. */

import { textOf } from "./errors.js";

/** The names of all properties of `T`, in the order of its documentation. */
export type Names<T> = Readonly<Record<keyof T, true>>;

/**
 * Throws a TypeError unless `value` is an object whose properties are all in `names`: a misspelt
 * name would be ignored otherwise.
 *
 * @param what The subject of the sentence, such as "a message to send".
 * @param example What would be right, such as "{ topic, body }".
 */
export function checkProperties<T extends object>(
  what: string,
  value: unknown,
  names: Names<T>,
  example: string,
): asserts value is T {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError(`${what}: got ${kindOf(value)}, expected an object such as ${example}`);
  }
  for (const name in value) {
    if (Object.hasOwn(names, name)) continue;
    const known = Object.keys(names).join(", ");
    throw new TypeError(`${what}: there is no property ${name}; expected some of ${known}`);
  }
}

/** Throws a TypeError unless `value` is text. */
export function checkString(name: string, value: unknown): asserts value is string {
  if (typeof value === "string") return;
  throw new TypeError(`${name} is ${quoted(value)}: expected text`);
}

/** Throws a TypeError unless `value` is a function. */
export function checkFunction(name: string, value: unknown): void {
  if (typeof value === "function") return;
  throw new TypeError(`${name} is ${quoted(value)}: expected a function`);
}

/** The longest timer, and the largest number of a request. */
export const MAX_I32 = 2 ** 31 - 1;

/**
 * Throws a TypeError unless `value` is a number, and a RangeError unless it is a time from `least`
 * to `most` in ms.
 */
export function checkMs(name: string, value: unknown, { least = 0, most = MAX_I32 } = {}): void {
  if (typeof value !== "number") {
    throw new TypeError(`${name} is ${quoted(value)}: expected a number of milliseconds`);
  }
  if (value >= least && value <= most) return;
  const limit = value > most ? `at most ${most}` : `${least} or more`;
  throw new RangeError(`${name} is ${value}: expected ${limit} milliseconds`);
}

/** Throws a RangeError unless `value` is a whole number from `least` on. */
export function checkWhole(name: string, value: unknown, least: number): void {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= MAX_I32) return;
  throw new RangeError(`${name} is ${quoted(value)}: expected a whole number, at least ${least}`);
}

/** Throws a TypeError unless `value` is a list. */
export function checkList(what: string, value: unknown): asserts value is readonly unknown[] {
  if (!Array.isArray(value)) throw new TypeError(`${what}: got ${kindOf(value)}, expected a list`);
}

/** Text in quotation marks, since "3" is no number; functions by name; other values as text. */
export function quoted(value: unknown): string {
  if (typeof value === "function") return `the function ${value.name}`;
  return typeof value === "string" ? JSON.stringify(value) : textOf(value);
}

export function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  return Array.isArray(value) ? "a list" : `a value of type ${typeof value}`;
}
