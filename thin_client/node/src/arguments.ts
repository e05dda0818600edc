/** Checks what applications pass, so that a mistake is one sentence and no failure inside. Pure. */

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
    if (name in names) continue;
    const known = Object.keys(names).join(", ");
    throw new TypeError(`${what}: there is no property ${name}; expected some of ${known}`);
  }
}

/** Throws a TypeError unless `value` is a list. */
export function checkList(what: string, value: unknown): asserts value is readonly unknown[] {
  if (!Array.isArray(value)) throw new TypeError(`${what}: got ${kindOf(value)}, expected a list`);
}

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  return Array.isArray(value) ? "a list" : `a value of type ${typeof value}`;
}
