/** Which calls of a producer may still go: none that overtakes a failed one of its key. Pure. */

/**
 * Calls enter when they are made, and leave when they have ended. When one fails, those of its keys
 * that were made before that, and wait, must not go: the application may send the failed one again.
 * Remembers failures only while calls wait.
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

  /** A call has ended; `failed` are the keys of what it did not store. */
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
