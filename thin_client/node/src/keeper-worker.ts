/** The worker thread of `keeper.ts`: extends leases while the event loop is blocked. */

import { parentPort, workerData } from "node:worker_threads";
import { parseAddress } from "./addresses.js";
import { nowMs, offsetMs } from "./clock.js";
import { Connection } from "./connection.js";
import type { Context, LeaseRef } from "./idl.js";
import {
  COLUMNS,
  COUNT,
  HEAD,
  LEASE_MS,
  type Names,
  pauseMs,
  type Report,
  type WorkerStart,
} from "./keeper.js";
import { nameIn } from "./leases.js";

const { signs, table, reports, started, dialling, groupId, clientId, token } =
  workerData as WorkerStart;
const offset = offsetMs(started);
const sign = new Int32Array(signs);
const rows = new Float64Array(table);
const homes: (readonly string[])[] = [];
const queues: Context[] = [];
/** By the addresses of the proxy. */
const connections = new Map<string, Connection>();

parentPort?.on("message", (names: Names) => {
  if ("homes" in names) homes.splice(names.from, Infinity, ...names.homes);
  else queues.splice(names.from, Infinity, ...names.queues);
});

let seen = -1;
let aliveMs = 0;
let keptMs = 0;
/** Leases refused since the last sign of life. */
const gone = new Set<string>();

async function look(): Promise<void> {
  const [now, leaseMs] = [performance.now(), rows[LEASE_MS] ?? 0];
  if (Atomics.load(sign, 0) !== seen || rows[COUNT] === 0) {
    seen = Atomics.load(sign, 0);
    aliveMs = now;
    keptMs = 0;
    gone.clear();
  } else if (now - aliveMs > leaseMs / 6 && now - keptMs > leaseMs / 4) {
    // The loop extends at a third of a lease, so after a sixth more, half of it is left.
    if (await keep(leaseMs)) keptMs = now;
  }
  setTimeout(() => void look(), pauseMs(leaseMs));
}

/** Extend all; false: some extends could not be sent, so retry at the next check. */
async function keep(leaseMs: number): Promise<boolean> {
  const held = new Map<number, LeaseRef[]>();
  for (let row = 0; row < (rows[COUNT] ?? 0); row++) {
    const at = HEAD + COLUMNS * row;
    const context = queues[rows[at + 1] ?? -1];
    const reference = context && { context, leaseId: rows[at + 2] ?? 0 };
    if (reference === undefined || gone.has(nameIn(reference))) continue;
    const home = rows[at] ?? 0;
    const leases = held.get(home);
    if (leases === undefined) held.set(home, [reference]);
    else leases.push(reference);
  }
  const all = [...held].map(([home, leases]) => extend(homes[home] ?? [], leases, leaseMs));
  return (await Promise.all(all)).every(Boolean);
}

async function extend(
  addresses: readonly string[],
  leases: LeaseRef[],
  leaseMs: number,
): Promise<boolean> {
  const name = addresses.join();
  try {
    let connection = connections.get(name);
    if (connection === undefined || connection.closed) {
      connection = await open(addresses);
      connections.set(name, connection);
    }
    const request = { groupId, leases, ms: Math.floor(leaseMs), clientId, token };
    const askedMs = nowMs() + offset;
    const answer = await connection.call("extend", dialling.timeoutMs, request);
    const refused = (answer.notHeld ?? []).map(nameIn);
    for (const each of refused) gone.add(each);
    const held = leases.map(nameIn).filter((each) => !gone.has(each));
    const report: Report = { askedMs, lengthMs: request.ms, held, refused };
    reports.postMessage(report);
    return true;
  } catch {
    connections.get(name)?.close();
    connections.delete(name);
    return false; // the loop reports it if its own extend fails
  }
}

async function open(addresses: readonly string[]): Promise<Connection> {
  let failure: unknown = new Error("no known address");
  for (const address of addresses) {
    try {
      return await Connection.open(parseAddress(address), dialling);
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

void look();
