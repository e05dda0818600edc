/** The messages of one handler: one message, or a batch of one key. */

import type { Holder, Message } from "./message.js";
import type { Outcome } from "./outcome.js";

/** Cancels a handler. Its signal is created on first use: most handlers do not need one. */
export class Work implements Holder {
  settle?: (message: Message, outcome: Outcome) => void;
  #controller: AbortController | null = null;
  #reason: Error | null = null;

  constructor(readonly messages: readonly Message[]) {}

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#reason !== null) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  /** Why it was cancelled; null if it was not. */
  get reason(): Error | null {
    return this.#reason;
  }

  abort(reason: Error): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
  }
}

/** Messages of one order key that arrived together, in order. */
export class KeyBatch implements Iterable<Message> {
  /** Number of messages known to be done; see `ok`. */
  done = 0;
  readonly #work: Work;

  /** @internal */
  constructor(work: Work) {
    this.#work = work;
  }

  get messages(): readonly Message[] {
    return this.#work.messages;
  }

  get length(): number {
    return this.messages.length;
  }

  /** The order key of all messages, as text; null if unordered. */
  get orderKey(): string | null {
    return this.messages[0]?.orderKey ?? null;
  }

  /** Aborts when the lease is lost or the drain times out. */
  get signal(): AbortSignal {
    return this.#work.signal;
  }

  [Symbol.iterator](): Iterator<Message> {
    return this.messages[Symbol.iterator]();
  }

  /** Mark this message and those before it as done, even if the handler throws later. */
  ok(message: Message): void {
    const place = this.messages.indexOf(message);
    if (place < 0) throw new Error(`${message} is not in this batch`);
    this.done = Math.max(this.done, place + 1);
  }
}
