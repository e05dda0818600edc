/**
 * A proxy in a worker thread, with leases of one second: it answers while the main thread is
 * blocked.
 */

import { parentPort } from "node:worker_threads";
import { FakeProxy } from "./fake-proxy.js";

const proxy = await FakeProxy.open();
proxy.leaseMs = 1_000;
proxy.put({ key: "a" }, { key: "b" });

let last = performance.now();
let longestGapMs = 0;
let seen = 0;
const look = setInterval(() => {
  if (proxy.extends.length === seen) return;
  seen = proxy.extends.length;
  longestGapMs = Math.max(longestGapMs, performance.now() - last);
  last = performance.now();
}, 10);

parentPort?.on("message", () => {
  clearInterval(look);
  parentPort?.postMessage({ longestGapMs, verdicts: proxy.verdicts });
});
parentPort?.postMessage(proxy.address);
