/** The consumer: passes the messages of a `Session` to handlers, and drains at the end. */

import { AsyncLocalStorage } from "node:async_hooks";
import { captureRejectionSymbol, EventEmitter } from "node:events";
import { constants } from "node:os";
import { Servers } from "./addresses.js";
import { checkList, checkProperties, type Names } from "./arguments.js";
import { nowMs } from "./clock.js";
import { type ClientError, DrainTimeout, LeaseLost, seenHere } from "./errors.js";
import { Feeder } from "./feeder.js";
import { checkHandler, checkResult } from "./handlers.js";
import type { Logger } from "./logger.js";
import type { Message } from "./message.js";
import {
  type ConsumerOptions,
  type ConsumerTrace,
  readLogger,
  readOptions,
  readTls,
  type Timing,
} from "./options.js";
import {
  Defer,
  isIntended,
  type Outcome,
  type OutcomeName,
  outcomeName,
  outcomeOf,
} from "./outcome.js";
import { Session } from "./session.js";
import { KeyBatch, Work } from "./work.js";

/** Passed to a handler with its message. */
export interface HandlerContext {
  /** Aborts when the lease is lost or the drain times out: stop if you can. */
  readonly signal: AbortSignal;
}

/**
 * Its return, or the end of the promise it returns, acks the message; a result whose work has not
 * run, such as a generator, does not. Retry, Reject, Defer or any other error is another outcome.
 */
export type Handler = (
  message: Message,
  context: HandlerContext,
) => void | undefined | PromiseLike<unknown>;

/**
 * No value: all messages are done. Otherwise the first `done` are, `failed` is the outcome of the
 * next one (default: released), and those behind it are released.
 */
export type BatchResult = void | { done: number; failed?: Error };

/** An error is the outcome of the first message not yet marked by `batch.ok`. */
export type BatchHandler = (
  batch: KeyBatch,
  context: HandlerContext,
) => BatchResult | Promise<BatchResult>;

export interface RunOptions {
  /** Its abort stops the consumer, as `stop` does. */
  signal?: AbortSignal;
  /** Process signals that stop it, such as `["SIGTERM", "SIGINT"]`; a second one does not wait. */
  stopOn?: readonly NodeJS.Signals[];
}

/** Events of a consumer. Listeners must not block; their errors are logged. */
export interface ConsumerEvents {
  /** A handler gets the message, or an iterator returns it. */
  handleStart: [message: Message];
  /** The message's handler ended. */
  handleEnd: [message: Message, outcome: OutcomeName];
  /** A pull was answered with this number of messages. */
  pulled: [messages: number];
  /** A settle (not a pull) carried these verdicts, `notHeld` of them on expired leases. */
  settled: [verdicts: number, notHeld: number];
  /** The message is with a handler, and may now be delivered to another client. */
  leaseLost: [message: Message];
  /** A request failed; it is retried if `error.retriable`. A listener is optional. */
  error: [error: ClientError];
}

/** The messages of the handler that runs. */
const handled = new AsyncLocalStorage<Work>();

/** Time for handlers to end after the drain timeout. */
const GRACE_MS = 1_000;

/**
 * Pulls the messages of a consumer group in order by key, and acks the handled ones. It is used
 * once, for one `run`, `runBatches` or `messages`.
 */
export class Consumer extends EventEmitter<ConsumerEvents> {
  readonly #session: Session;
  readonly #timing: Timing;
  readonly #servers: Servers;
  readonly #feeder: Feeder;
  readonly #logger: Logger;
  readonly #trace: ConsumerTrace | undefined;
  readonly #works = new Map<Message, Work>();
  #dispatch: () => void = () => {};
  #ended: Promise<void> | null = null;
  #waits: { condition: () => boolean; end: (reached: boolean) => void }[] = [];
  #draining = false;

  /** Throws a TypeError or RangeError for invalid options. */
  constructor(options: ConsumerOptions) {
    super({ captureRejections: true });
    const { session, timing } = readOptions(options);
    this.#session = new Session(session);
    this.#timing = timing;
    this.#logger = readLogger(options.logger);
    this.#trace = options.trace ?? undefined;
    this.#servers = new Servers(options.servers);
    this.#feeder = new Feeder(this.#session, {
      servers: this.#servers,
      dialling: { timeoutMs: timing.requestTimeoutMs, tls: readTls(options.tls) },
      logger: this.#logger,
      listener: {
        changed: () => this.#turn(),
        pulled: (messages) => this.#tell("pulled", messages),
        settled: (verdicts, notHeld) => this.#tell("settled", verdicts, notHeld),
        leaseLost: (message) => this.#leaseLost(message),
        failed: (error) => this.#tell("error", error),
      },
    });
  }

  override toString(): string {
    return `Consumer at ${this.#servers.address}, ${this.#session}`;
  }

  /**
   * Stop pulling: `run` returns and the iterator ends when handlers have ended. A second call does
   * not wait for them.
   */
  stop(): void {
    if (this.#draining) for (const wait of this.#waits.splice(0)) wait.end(false);
    this.#session.stop(nowMs());
    this.#turn();
  }

  /**
   * Stop, and wait for the last verdict; also if it was stopped before. In a handler of this
   * consumer it does not wait: the consumer is closed after its handlers. In a loop over `messages`
   * leave the loop instead, since its message has no verdict yet.
   */
  async close(): Promise<void> {
    if (!this.#session.stopping) this.stop(); // a second stop would not wait
    if (this.#runsHere()) return; // it would wait for itself
    await this.#ended?.catch(() => {}); // reported by run
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // ---- the parallel forms -----------------------------------------------------------------------

  /**
   * Handle messages of up to `concurrency` keys in parallel, until the consumer is stopped. Rejects
   * with Refused and other errors that no retry can help.
   */
  async run(handler: Handler, options: RunOptions = {}): Promise<void> {
    checkHandler(handler);
    await this.#run(options, () => {
      const message = this.#session.take(nowMs());
      if (message === undefined) return false;
      const work = this.#begin([message]);
      void this.#handle(work, async () => {
        checkResult(await handled.run(work, handler, message, work));
        return 1;
      });
      return true;
    });
  }

  /**
   * As `run`, with batches: messages of one key that arrived together, up to `maxRun`. A message
   * without an order key is alone.
   */
  async runBatches(handler: BatchHandler, options: RunOptions = {}): Promise<void> {
    checkHandler(handler);
    await this.#run(options, () => {
      const messages = this.#session.takeRun(nowMs());
      if (messages.length === 0) return false;
      const work = this.#begin(messages);
      const batch = new KeyBatch(work);
      void this.#handle(
        work,
        async () => {
          const result = await handled.run(work, handler, batch, work);
          if (result === undefined || result === null) return messages.length;
          checkResult(result);
          batch.done = checkedCount(result.done, messages.length);
          if (batch.done < messages.length) throw result.failed ?? new Defer();
          return batch.done;
        },
        () => batch.done,
      );
      return true;
    });
  }

  /** `begin` delivers as many messages as it can at once; false: none. */
  #run(options: RunOptions, begin: () => boolean): Promise<void> {
    return this.#live(options, async () => {
      this.#dispatch = () => {
        while (!this.#session.stopping && this.#session.takeable && begin());
      };
      await this.#reached(() => this.#session.stopping);
    });
  }

  async #handle(work: Work, handle: () => Promise<number>, doneAtError = () => 0): Promise<void> {
    let done = 0;
    let outcome: Outcome;
    try {
      done = await (this.#trace === undefined ? handle() : this.#traced(work, this.#trace, handle));
    } catch (thrown) {
      outcome = outcomeOf(thrown);
      done = doneAtError();
    }
    this.#settle(work, done, outcome);
  }

  /** Handle within the trace hook, whose own faults are logged: they do not fail the handler. */
  async #traced(
    { messages }: Work,
    trace: ConsumerTrace,
    handle: () => Promise<number>,
  ): Promise<number> {
    const first = messages[0]!;
    let handling: Promise<number> | undefined;
    let running = true;
    const once = (): Promise<number> => {
      if (handling === undefined) {
        handling = handle().finally(() => (running = false));
        handling.catch(() => {}); // awaited below
      }
      return handling;
    };
    let fault: unknown = null;
    try {
      await trace(first.trace, first, once);
      if (running) fault = new Error("it did not wait for the handler");
    } catch (error) {
      fault = error;
    }
    const done = await once(); // throws the handler's error, which passed through the hook
    if (fault !== null) this.#logger.error("orderlane: the trace hook failed", fault);
    return done;
  }

  // ---- the iterator -----------------------------------------------------------------------------

  /**
   * Iterate over messages one at a time. Settle each with `ok`, `retry`, `reject` or `defer` before
   * asking for the next one; otherwise the iteration fails, and the loop ends. Leaving the loop
   * drains the consumer; a message not settled by then counts as failed and is retried.
   */
  messages(options: RunOptions = {}): AsyncIterableIterator<Message> {
    let current: Work | null = null;
    let asking = false;
    let leave: () => void = () => {};
    const left = new Promise<void>((resolve) => (leave = resolve));
    const ended = this.#live(options, async () => {
      await Promise.race([left, this.#reached(() => this.#session.stopping)]);
    });
    ended.catch(() => {}); // reported by next
    const settle = (message: Message, outcome: Outcome): void => {
      const work = current;
      current = null;
      message.hold(null);
      if (work !== null) this.#settle(work, outcome === undefined ? 1 : 0, outcome);
    };
    const finish = async (): Promise<IteratorResult<Message>> => {
      leave();
      await ended;
      return { value: undefined, done: true };
    };
    return {
      [Symbol.asyncIterator]() {
        return this;
      },
      next: async () => {
        const unsettled = current?.messages[0];
        if (unsettled !== undefined) {
          const error = new Error(
            `${unsettled} is not settled: call its ok(), retry(), reject() or defer()` +
              " before asking for the next message",
          );
          const work = current;
          setImmediate(() => {
            // A failed step does not close its iterator, so nothing would settle the message later.
            if (current !== work) return;
            settle(unsettled, error);
            leave();
          });
          throw error;
        }
        if (asking) throw new Error("messages must be requested one at a time");
        asking = true;
        let message: Message | undefined;
        await this.#reached(() => {
          if (this.#session.stopping) return true;
          message ??= this.#session.take(nowMs());
          return message !== undefined;
        });
        asking = false;
        if (message === undefined) return finish();
        current = this.#begin([message]);
        current.settle = settle;
        message.hold(current);
        return { value: message, done: false };
      },
      return: async () => {
        const message = current?.messages[0];
        if (message !== undefined)
          settle(message, new Error("the loop ended before the message was settled"));
        return finish();
      },
    };
  }

  // ---- internals --------------------------------------------------------------------------------

  /** Run `use`, from the first pull to the last ack. */
  #live(options: RunOptions, use: () => Promise<void>): Promise<void> {
    if (this.#ended !== null) throw new Error("a consumer is used once: create a new one");
    checkRun(options);
    const { signal, stopOn = [] } = options;
    const stop = (): void => this.stop();
    const live = async (): Promise<void> => {
      for (const name of stopOn) process.on(name, stop);
      signal?.addEventListener("abort", stop);
      try {
        if (signal?.aborted) this.stop();
        if (!this.#session.stopping) this.#feeder.start();
        await use();
      } finally {
        await this.#drain();
        for (const name of stopOn) process.off(name, stop);
        signal?.removeEventListener("abort", stop);
      }
      if (this.#feeder.failure !== null) throw seenHere(this.#feeder.failure);
    };
    this.#ended = live();
    return this.#ended;
  }

  /** Whether this code is part of a handler that has not ended. */
  #runsHere(): boolean {
    const message = handled.getStore()?.messages[0];
    return message !== undefined && this.#works.has(message);
  }

  #begin(messages: Message[]): Work {
    const work = new Work(messages);
    for (const message of messages) {
      message.hold(work);
      this.#works.set(message, work);
      this.#tell("handleStart", message);
    }
    this.#feeder.turn();
    return work;
  }

  #settle({ messages, reason }: Work, done: number, ended: Outcome): void {
    let outcome = ended;
    if (outcome !== undefined && !isIntended(outcome)) {
      const failed = messages[done];
      const text =
        failed === undefined
          ? "orderlane: the handler failed after all messages of its batch were done"
          : `orderlane: handling ${failed} failed; the message will be retried`;
      if (reason instanceof DrainTimeout) outcome = new Defer(); // ended as requested
      else this.#logger.error(text, outcome);
    }
    // Before the session lets the key's next message start.
    messages.forEach((message, place) => {
      this.#works.delete(message);
      const name = place < done ? "ok" : place > done ? "defer" : outcomeName(outcome);
      this.#tell("handleEnd", message, name);
    });
    this.#session.settleRun(messages, done, outcome, nowMs());
    this.#turn();
  }

  #leaseLost(message: Message): void {
    this.#works.get(message)?.abort(new LeaseLost(`the lease of ${message} is lost`));
    this.#tell("leaseLost", message);
  }

  /** Wake all that wait for a change. */
  #turn(): void {
    if (this.#feeder.failure !== null && !this.#session.stopping) this.#session.stop(nowMs());
    this.#dispatch();
    this.#feeder.turn();
    if (this.#waits.length === 0) return;
    for (const wait of [...this.#waits]) if (wait.condition()) wait.end(true);
  }

  /** Wait for handlers, release the rest, send the verdicts, and close. */
  async #drain(): Promise<void> {
    const session = this.#session;
    session.stop(nowMs());
    this.#draining = true;
    this.#turn();
    if (!(await this.#reached(() => session.drained, this.#timing.drainTimeoutMs))) {
      const reason = new DrainTimeout("drain timed out: the consumer ends before its handlers");
      for (const work of new Set(this.#works.values())) work.abort(reason);
      await this.#reached(() => session.open === 0, GRACE_MS);
      await this.#reached(() => session.flushed, this.#timing.requestTimeoutMs);
    }
    await this.#feeder.close();
  }

  /** Wait for `condition`; false: timed out. */
  #reached(condition: () => boolean, limitMs?: number): Promise<boolean> {
    if (condition()) return Promise.resolve(true);
    return new Promise((resolve) => {
      const wait = {
        condition,
        end: (reached: boolean) => {
          clearTimeout(timer);
          this.#waits = this.#waits.filter((each) => each !== wait);
          resolve(reached);
        },
      };
      const timer = limitMs === undefined ? undefined : setTimeout(() => wait.end(false), limitMs);
      this.#waits.push(wait);
    });
  }

  #tell<K extends keyof ConsumerEvents>(event: K, ...told: ConsumerEvents[K]): void {
    if (this.listenerCount(event) === 0) return; // otherwise an error without listener would throw
    try {
      (this.emit as (name: K, ...all: ConsumerEvents[K]) => boolean).call(this, event, ...told);
    } catch (error) {
      this[captureRejectionSymbol](error, event);
    }
  }

  /** A listener, or the promise it returned, failed. @internal */
  override [captureRejectionSymbol](error: unknown, ...[event]: unknown[]): void {
    this.#logger.error(`orderlane: a listener for ${String(event)} failed`, error);
  }
}

const RUN_OPTIONS: Names<RunOptions> = { signal: true, stopOn: true };

/** Signals that the system handles itself. */
const UNCAUGHT = new Set(["SIGKILL", "SIGSTOP"]);

function checkRun(options: RunOptions): void {
  checkProperties("the options of a run", options, RUN_OPTIONS, '{ stopOn: ["SIGTERM"] }');
  const { signal, stopOn } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError("signal is no AbortSignal: expected that of an AbortController");
  }
  if (stopOn === undefined) return;
  checkList("stopOn", stopOn);
  for (const name of stopOn) {
    if (!(String(name) in constants.signals)) {
      throw new TypeError(`stopOn: there is no signal ${String(name)}; expected one as SIGTERM`);
    }
    if (UNCAUGHT.has(String(name))) {
      throw new TypeError(`stopOn: no process receives ${String(name)}; expected one as SIGTERM`);
    }
  }
}

function checkedCount(done: number, length: number): number {
  if (Number.isInteger(done) && done >= 0 && done <= length) return done;
  throw new RangeError(`done is ${done}: expected a whole number from 0 to ${length}`);
}
