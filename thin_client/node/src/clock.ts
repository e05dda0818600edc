/**
 * The client's clock. Leases are counted on it, so it goes on while the machine is suspended, which
 * Node's monotonic clock does not.
 */

import { uptime } from "node:os";

/** A jump of the wall clock against the monotonic one that is worth a look at the uptime. */
const JUMP_MS = 500;

let drift = Date.now() - performance.now();
let awake = uptime() * 1000 - performance.now();
let slept = 0;

/** Milliseconds on a clock that never goes back, suspended time included. */
export function nowMs(): number {
  const monotonic = performance.now();
  const driftNow = Date.now() - monotonic;
  if (driftNow - drift > JUMP_MS || drift - driftNow > JUMP_MS) {
    // The machine slept, or someone set the wall clock: the time since its boot tells which.
    drift = driftNow;
    const awakeNow = uptime() * 1000 - monotonic;
    if (awakeNow - awake > JUMP_MS) {
      slept += awakeNow - awake;
      awake = awakeNow;
    }
  }
  return monotonic + slept;
}
