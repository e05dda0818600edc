/** What a handler is at: one message, or a batch of one key. */

import type { Holder, Message } from "./message.js";
import type { Outcome } from "./outcome.js";

/** Tells a handler to stop. The signal is made when someone asks for it: most handlers do not. */
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

  /** Why it was told to stop; null while it was not. */
  get reason(): Error | null {
    return this.#reason;
  }

  abort(reason: Error): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
  }
}

/** Messages of one order key that came together, in their order. */
export class KeyBatch implements Iterable<Message> {
  /** How many are known to be done; see `ok`. */
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

  /** Of all messages in the batch, as text; null for one that is in no order. */
  get orderKey(): string | null {
    return this.messages[0]?.orderKey ?? null;
  }

  /** Aborts when the lease is lost, or the time to drain is up. */
  get signal(): AbortSignal {
    return this.#work.signal;
  }

  [Symbol.iterator](): Iterator<Message> {
    return this.messages[Symbol.iterator]();
  }

  /** This message and those ahead of it are done, also if the handler throws later. */
  ok(message: Message): void {
    const place = this.messages.indexOf(message);
    if (place < 0) throw new Error(`${message} is not in this batch`);
    this.done = Math.max(this.done, place + 1);
  }
}
