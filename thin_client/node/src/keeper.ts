/**
 * Keeps leases alive while a handler blocks the event loop: a worker thread beside the consumer.
 *
 * A long computation in a handler keeps the loop from extending leases, and other clients would get
 * the messages although the process is alive. So the held leases are in memory shared by both
 * threads, and when the loop gives no sign of life, the worker extends them on its own connections.
 * The loop learns from its reports how long the leases run, and which were refused: it reads them
 * before it judges by the time that a lease or a verdict is over.
 */

import { join } from "node:path";
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import { type Moment, moment } from "./clock.js";
import type { Dialling } from "./connection.js";
import type { Context } from "./idl.js";
import type { Home } from "./leases.js";
import type { Logger } from "./logger.js";
import type { Message } from "./message.js";
import type { Session } from "./session.js";

/** The table's first numbers: how many leases follow, and the length of one in ms. */
export const COUNT = 0;
export const LEASE_MS = 1;
/** Then three numbers per lease: proxy, queue, lease id. */
export const HEAD = 2;
export const COLUMNS = 3;
/** Signs of life per lease length, with limits of the pause between them. */
const SIGNS_A_LEASE = 24;
const [SHORTEST_MS, LONGEST_MS] = [20, 1_000];
/** Names sent to the worker before it clears them. */
const MAX_NAMES = 4_096;
/** Limits the memory of the table; the thread does not extend more leases than that. */
const MAX_ROOM = 2 ** 20;

/** Data for the start of the worker. */
export interface WorkerStart {
  readonly signs: SharedArrayBuffer;
  readonly table: SharedArrayBuffer;
  readonly reports: MessagePort;
  readonly started: Moment;
  readonly dialling: Dialling;
  readonly groupId: string;
  readonly clientId: string;
  readonly token: string | null;
}

/** Names for the numbers of the table, from number `from` on; earlier ones remain valid. */
export type Names =
  | { readonly homes: readonly (readonly string[])[]; readonly from: number }
  | { readonly queues: readonly Context[]; readonly from: number };

/** The answer to an extend of the worker. `askedMs` is by the loop's `nowMs`; leases by name. */
export interface Report {
  readonly askedMs: number;
  readonly lengthMs: number;
  readonly held: readonly string[];
  readonly refused: readonly string[];
}

/** The time between two signs of life. */
export function pauseMs(leaseMs: number): number {
  return Math.min(Math.max(leaseMs / SIGNS_A_LEASE, SHORTEST_MS), LONGEST_MS);
}

export class Keeper {
  readonly #signs = new Int32Array(new SharedArrayBuffer(4));
  readonly #table: Float64Array<SharedArrayBuffer>;
  readonly #room: number;
  readonly #queues = new Map<string, number>();
  readonly #homes = new Map<Home, number>();
  /** Read where needed, also before the loop would deliver its messages. */
  readonly #reports = new MessageChannel();
  #worker: Worker | null = null;
  #timer: NodeJS.Timeout | undefined;
  #signedMs = 0;
  #warned = false;
  #closed = false;

  /**
   * `reachedAt`: addresses to try for a proxy, best first. `kept`: called after the session has
   * learned of extends, with the messages with handlers whose lease is lost.
   */
  constructor(
    private readonly session: Session,
    private readonly dialling: Dialling,
    private readonly reachedAt: (home: Home) => string[],
    private readonly logger: Logger,
    private readonly kept: (lost: Message[]) => void,
  ) {
    const { concurrency, prefetch } = session.options;
    this.#room = Math.min(4 * (concurrency + prefetch) + 64, MAX_ROOM);
    const numbers = HEAD + COLUMNS * this.#room;
    this.#table = new Float64Array(new SharedArrayBuffer(8 * numbers));
  }

  /** Start the worker before the first lease arrives: the first handler may block at once. */
  start(): void {
    this.#worker ??= this.#started();
  }

  /** Show new leases to the worker. */
  publish(): void {
    const leaseMs = this.session.leaseMs ?? 0;
    if (this.#closed || leaseMs === 0) return;
    if (this.#queues.size > MAX_NAMES) this.#forgetNames();
    let count = 0;
    for (const { home, context, leaseId } of this.session.toKeep()) {
      if (count === this.#room) break;
      const at = HEAD + COLUMNS * count++;
      this.#table[at] = this.#homeNumber(home);
      this.#table[at + 1] = this.#queueNumber(context);
      this.#table[at + 2] = leaseId;
    }
    this.#table[LEASE_MS] = leaseMs;
    this.#table[COUNT] = count;
    if (this.#timer === undefined) this.#watch(leaseMs);
  }

  /** Report the worker's extends to the session. */
  catchUp(): void {
    if (this.#closed) return;
    const lost: Message[] = [];
    let reports = 0;
    for (;;) {
      const received = receiveMessageOnPort(this.#reports.port1) as { message: Report } | undefined;
      if (received === undefined) break;
      reports++;
      const { askedMs, lengthMs, held, refused } = received.message;
      const sets = { held: new Set(held), refused: new Set(refused) };
      lost.push(...this.session.keptMeanwhile({ askedMs, lengthMs, ...sets }));
    }
    if (reports > 0) this.kept(lost);
  }

  /** End the worker. */
  close(): void {
    this.#closed = true;
    this.#rest();
    this.#reports.port1.close();
    void this.#worker?.terminate();
  }

  // ---- signs of life ----------------------------------------------------------------------------

  #watch(leaseMs: number): void {
    this.#sign();
    this.#timer = setInterval(() => this.#look(), pauseMs(leaseMs));
    this.#timer.unref();
  }

  #sign(): void {
    this.#signedMs = performance.now();
    Atomics.add(this.#signs, 0, 1);
  }

  #look(): void {
    const leaseMs = this.session.leaseMs ?? 0;
    const lateMs = performance.now() - this.#signedMs - pauseMs(leaseMs);
    this.#sign();
    if (3 * lateMs > leaseMs && !this.#warned) {
      this.#warned = true;
      this.logger.warn(
        `orderlane: the event loop was blocked for ${(lateMs / 1000).toFixed(1)} s, the lease is` +
          ` ${leaseMs / 1000} s: compute in a worker thread, or await long operations; meanwhile` +
          " another thread extended leases",
      );
    }
    this.catchUp();
    if (!this.session.holdsAny) this.#rest();
  }

  #rest(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#table[COUNT] = 0;
  }

  // ---- names ------------------------------------------------------------------------------------

  #homeNumber(home: Home): number {
    let number = this.#homes.get(home);
    if (number === undefined) {
      number = this.#homes.size;
      this.#homes.set(home, number);
      this.#tell({ homes: [this.reachedAt(home)], from: number });
    }
    return number;
  }

  #queueNumber(context: Context): number {
    const name = `${context.topic}\0${context.qid}`;
    let number = this.#queues.get(name);
    if (number === undefined) {
      number = this.#queues.size;
      this.#queues.set(name, number);
      this.#tell({ queues: [context], from: number });
    }
    return number;
  }

  #forgetNames(): void {
    this.#queues.clear();
    this.#homes.clear();
  }

  #tell(names: Names): void {
    this.#worker ??= this.#started();
    this.#worker.postMessage(names);
  }

  #started(): Worker {
    const { group: groupId, clientId, token } = this.session.options;
    const { timeoutMs, tls } = this.dialling;
    const start: WorkerStart = {
      signs: this.#signs.buffer,
      table: this.#table.buffer,
      reports: this.#reports.port2,
      started: moment(),
      dialling: { timeoutMs, tls },
      groupId,
      clientId,
      token,
    };
    const worker = new Worker(join(__dirname, "keeper-worker.js"), {
      name: "orderlane leases",
      workerData: start,
      transferList: [start.reports],
    });
    worker.on("error", (error) => {
      const text = "orderlane: leases are not extended while a handler blocks the event loop";
      if (!this.#closed) this.logger.warn(`${text}: ${error.message}`);
    });
    worker.unref();
    return worker;
  }
}
