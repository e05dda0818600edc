/** When, where and how loudly to retry a request. Pure. */

import { type ClientError, ConnectionLost } from "./errors.js";

const FIRST_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 5_000;

/** The wait after consecutive failures; `jitter` in [0, 1) spreads clients. */
export function backoffMs(failures: number, jitter: number): number {
  const longest = Math.min(FIRST_BACKOFF_MS * 2 ** Math.min(failures - 1, 10), MAX_BACKOFF_MS);
  return longest * (0.5 + jitter / 2);
}

/** Whether the next pull goes to another address; not if an answer may be waiting here (S9). */
export function triesElsewhere(error: ClientError, failures: number): boolean {
  return !(error instanceof ConnectionLost && error.broke && failures === 1);
}

/**
 * True for the 1st, 2nd, 4th, 8th … consecutive failure: a long outage is logged ever less often.
 */
export function isNews(failures: number): boolean {
  return (failures & (failures - 1)) === 0;
}
