/**
 * The clock that leases are measured by. It runs while the machine is suspended, which Node's
 * monotonic clock does not.
 */

import { uptime } from "node:os";

/** A jump of the wall clock against the monotonic one that makes the uptime worth reading. */
const JUMP_MS = 500;

let drift = Date.now() - performance.now();
let awake = uptime() * 1000 - performance.now();
let slept = 0;

/** Milliseconds on a monotonic clock, including suspended time. */
export function nowMs(): number {
  const monotonic = performance.now();
  const driftNow = Date.now() - monotonic;
  if (driftNow - drift > JUMP_MS || drift - driftNow > JUMP_MS) {
    // Either the machine was suspended or the wall clock was set: the uptime distinguishes them.
    drift = driftNow;
    const awakeNow = uptime() * 1000 - monotonic;
    if (awakeNow - awake > JUMP_MS) {
      slept += awakeNow - awake;
      awake = awakeNow;
    }
  }
  return monotonic + slept;
}

/** A moment by `nowMs` of one thread, and by a clock that all threads share. */
export interface Moment {
  readonly nowMs: number;
  readonly sharedMs: number;
}

export function moment(): Moment {
  return { nowMs: nowMs(), sharedMs: Number(process.hrtime.bigint()) / 1e6 };
}

/** Returns what to add to this thread's `nowMs` for that of the thread of `theirs`. */
export function offsetMs(theirs: Moment): number {
  const mine = moment();
  return theirs.nowMs - mine.nowMs + (mine.sharedMs - theirs.sharedMs);
}
