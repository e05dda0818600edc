/**
 * A proxy in a worker thread, with leases of one second: it answers while the main thread is
 * blocked.
 */

import { parentPort, workerData } from "node:worker_threads";
import { FakeProxy } from "./fake-proxy.js";

async function main(): Promise<void> {
  const proxy = await FakeProxy.open();
  proxy.leaseMs = 1_000;
  proxy.put({ key: "a" }, { key: "b" });

  // Tells the thread that waits for it that leases were extended again and again.
  const extended = workerData as Int32Array;
  const look = setInterval(() => {
    if (proxy.extends.length < 5) return;
    clearInterval(look);
    Atomics.store(extended, 0, 1);
    Atomics.notify(extended, 0);
  }, 10);

  parentPort?.on("message", () => {
    clearInterval(look);
    parentPort?.postMessage(proxy.verdicts);
  });
  parentPort?.postMessage(proxy.address);
}

void main();
