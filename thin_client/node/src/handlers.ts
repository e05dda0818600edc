/** Checks handlers, and results whose work has not run. Pure. */

import { ChildProcess } from "node:child_process";
import { type Duplex, Stream } from "node:stream";
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
 * Throws for an awaited result whose work has not run, or may still run: a TypeError for a
 * generator, another iterator, a function, an observable, a stream, timer or process that has not
 * ended, a collection with one of these or with promises, and an object with promises. A returned error is thrown, also
 * in a collection, and so is the reason of a rejection, as `Promise.allSettled` returns them.
 */
export function checkResult(result: unknown): void {
  if (result === undefined || result === null) return;
  for (const each of partsOf(result)) {
    if (each instanceof Error) throw each;
    if (each !== result && isRejection(each)) throw each.reason;
    const what = notRun(each);
    if (what === null) continue;
    throw new TypeError(
      `the handler returned ${what}, so its work has not run: a message is acked only after the` +
        " handler has done its work",
    );
  }
}

function partsOf(result: {}): Iterable<unknown> {
  if (Array.isArray(result) || types.isSet(result)) return result;
  if (types.isMap(result)) return result.values();
  if (Object.getPrototypeOf(result) !== Object.prototype) return [result];
  // Other values of an object may be the state of work that is done, as of an HTTP request.
  return [result, ...Object.values(result).filter(isThenable)];
}

function notRun(result: unknown): string | null {
  if (typeof result === "function") return "a function that was not called";
  if (typeof result !== "object" || result === null) return null;
  if (isThenable(result)) return "promises that were not awaited (use Promise.all)";
  if (result instanceof Stream) return hasEnded(result) ? null : "a stream that has not ended";
  if (types.isGeneratorObject(result) || Symbol.asyncIterator in result) {
    return "a generator that was not iterated";
  }
  if (Symbol.iterator in result && "next" in result) return "an iterator that was not iterated";
  if (isPendingTimer(result)) return "a timer that has not fired";
  if (result instanceof ChildProcess && result.exitCode === null && result.signalCode === null) {
    return "a process that runs";
  }
  if ("@@observable" in result) return "an observable that was not subscribed to";
  return null;
}

/** Whether it is the result of `setTimeout`, `setInterval` or `setImmediate`, still to be called. */
function isPendingTimer(result: object): boolean {
  const timer = result as { hasRef?: unknown; _destroyed?: unknown };
  return typeof timer.hasRef === "function" && timer._destroyed === false;
}

/** Whether nothing is left to be read or written. */
function hasEnded(stream: Stream): boolean {
  const { destroyed, readableEnded, writableFinished } = stream as Duplex;
  return destroyed || (readableEnded !== false && writableFinished !== false);
}

function isRejection(each: unknown): each is PromiseRejectedResult {
  if (typeof each !== "object" || each === null) return false;
  const { status } = each as PromiseRejectedResult;
  return status === "rejected" && Object.keys(each).join() === "status,reason";
}

function isThenable(each: unknown): boolean {
  return typeof (each as { then?: unknown } | null | undefined)?.then === "function";
}
