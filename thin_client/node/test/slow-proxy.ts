/** A proxy in a worker thread: it answers while the main thread is blocked. */

import { isMainThread, parentPort, workerData } from "node:worker_threads";
import { FakeProxy, until } from "./fake-proxy.js";

export interface SlowProxyData {
  /** 1 at these places: leases were extended again and again; a settle has arrived. */
  readonly signals: Int32Array;
  readonly leaseMs: number;
  readonly keys: readonly string[];
  /** The answer to the first settle: at once, with the third extend, or never. */
  readonly firstSettle: "prompt" | "late" | "lost";
}
export const [EXTENDED, SETTLED] = [0, 1];

async function main(): Promise<void> {
  const { signals, leaseMs, keys, firstSettle } = workerData as SlowProxyData;
  const proxy = await FakeProxy.open();
  proxy.leaseMs = leaseMs;
  proxy.put(...keys.map((key) => ({ key })));

  const settle = proxy.settle.bind(proxy);
  proxy.settle = async (request) => {
    const answer = await settle(request);
    const isFirst = Atomics.exchange(signals, SETTLED, 1) === 0;
    if (isFirst && firstSettle === "lost") await new Promise(() => {});
    if (isFirst && firstSettle === "late") await until(() => proxy.extends.length >= 3);
    return answer;
  };

  const look = setInterval(() => {
    if (proxy.extends.length < 5) return;
    clearInterval(look);
    Atomics.store(signals, EXTENDED, 1);
    Atomics.notify(signals, EXTENDED);
  }, 10);

  parentPort?.on("message", () => {
    clearInterval(look);
    parentPort?.postMessage(proxy.verdicts);
  });
  parentPort?.postMessage(proxy.address);
}

if (!isMainThread) void main();
