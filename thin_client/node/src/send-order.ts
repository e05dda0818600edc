/** Keeps a producer's calls from overtaking a failed one of their key. Pure. */

/**
 * Calls enter when they are made, and leave when they have ended. When one fails, the calls behind
 * it that wait with its keys must not be sent: the application may send the failed messages again.
 * Calls ahead of it are sent: a waiting call may end before them, because its time is up. Failures
 * are remembered only while calls wait.
 */
export class SendOrder {
  #last = 0;
  readonly #inside = new Set<number>(); // in ascending order
  readonly #failed = new Map<string, Failure[]>();

  /** Returns the call's number. */
  enter(): number {
    this.#inside.add(++this.#last);
    return this.#last;
  }

  /** End call `number`; `failed` are the keys of messages it did not store. */
  leave(number: number, failed: Iterable<string> = []): void {
    this.#inside.delete(number);
    if (this.#inside.size === 0) this.#failed.clear();
    else for (const key of failed) this.#fail(number, key);
  }

  /**
   * True if a call with one of the `keys` failed that was made before call `number`, and ended after
   * that.
   */
  heldBack(number: number, keys: readonly string[]): boolean {
    const holds = ({ call, last }: Failure): boolean => call < number && number <= last;
    return keys.some((key) => this.#failed.get(key)?.some(holds));
  }

  #fail(call: number, key: string): void {
    const failures = this.#failed.get(key) ?? [];
    const latest = failures.at(-1);
    if (latest !== undefined && latest.call <= call && call <= latest.last) {
      latest.last = this.#last;
      return;
    }
    const [oldest] = this.#inside as Iterable<number> as [number];
    const waitedFor = failures.filter((each) => each.call < call && each.last >= oldest);
    this.#failed.set(key, [...waitedFor, { call, last: this.#last }]);
  }
}

/** Holds back the calls behind `call`, up to the last that was made before it ended. */
interface Failure {
  readonly call: number;
  last: number;
}
