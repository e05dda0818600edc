/** Keeps a producer's calls from overtaking a failed one of their key. Pure. */

/**
 * Calls enter when they are made, and leave when they have ended. When one fails, waiting calls of
 * its keys that were made before the failure must not be sent: the application may send the failed
 * messages again. Failures are remembered only while calls wait.
 */
export class SendOrder {
  #last = 0;
  #inside = 0;
  readonly #failed = new Map<string, number>(); // the last call made before the key's failure

  /** Returns the call's number. */
  enter(): number {
    this.#inside++;
    return ++this.#last;
  }

  /** End a call; `failed` are the keys of messages it did not store. */
  leave(failed: Iterable<string> = []): void {
    this.#inside--;
    for (const key of failed) this.#failed.set(key, this.#last);
    if (this.#inside === 0) this.#failed.clear();
  }

  /** True if call `number` was made before one of its `keys` failed. */
  heldBack(number: number, keys: readonly string[]): boolean {
    return keys.some((key) => (this.#failed.get(key) ?? 0) >= number);
  }
}
