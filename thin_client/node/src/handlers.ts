/** Checks handlers, and results whose work has not run. Pure. */

import { types } from "node:util";

/** Throws a TypeError for a handler whose call would not run its work. */
export function checkHandler(handler: unknown): void {
  if (typeof handler !== "function") {
    throw new TypeError(`the handler is of type ${typeof handler}: expected a function`);
  }
  const name = handler.name || "given";
  if (types.isGeneratorFunction(handler)) {
    throw new TypeError(
      `the handler ${name} is a generator function, whose call does not run it: expected a` +
        " function without yield",
    );
  }
  if (/^class\b/.test(Function.prototype.toString.call(handler))) {
    throw new TypeError(`the handler ${name} is a class: expected a function`);
  }
  if (handler.length > 2) {
    throw new TypeError(
      `the handler ${name} takes ${handler.length} parameters: expected (message, context); it` +
        " ends with the promise it returns, and there is no callback",
    );
  }
}

/**
 * Throws for a result whose work has not run, or may still run: a TypeError for a generator, a
 * function, or a list of promises. A returned error is thrown.
 */
export function checkResult(result: unknown): void {
  if (result === undefined || result === null) return;
  if (result instanceof Error) throw result;
  const what = notRun(result);
  if (what === null) return;
  throw new TypeError(
    `the handler returned ${what}, so its work has not run: a message is acked only after the` +
      " handler has done its work",
  );
}

function notRun(result: unknown): string | null {
  if (typeof result === "function") return "a function that was not called";
  if (typeof result !== "object" || result === null) return null;
  if (types.isGeneratorObject(result) || Symbol.asyncIterator in result) {
    return "a generator that was not iterated";
  }
  if (Array.isArray(result) && result.some(isThenable)) {
    return "a list of promises that was not awaited (use Promise.all)";
  }
  return null;
}

function isThenable(each: unknown): boolean {
  return typeof (each as { then?: unknown } | null | undefined)?.then === "function";
}
