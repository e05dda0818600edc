/**
 * Keeps a `Session` supplied. One loop pulls; another for each proxy that holds leases settles and
 * extends on its own connection, because a waiting pull occupies the first one.
 */

import { type Address, parseAddress, type Servers } from "./addresses.js";
import { nowMs } from "./clock.js";
import { Connection, type Dialling } from "./connection.js";
import { ClientError, ConnectionLost } from "./errors.js";
import type { AckAnswer } from "./idl.js";
import { Keeper } from "./keeper.js";
import type { Home } from "./leases.js";
import type { Logger } from "./logger.js";
import type { Message } from "./message.js";
import { isNews, triesElsewhere } from "./retries.js";
import type { Control, Session } from "./session.js";

/** Lets one loop sleep until work is due. */
class Alarm {
  #plannedMs: number | null = null; // null: awake
  #wake: () => void = () => {};
  #closed = false;

  /** `dueAt` returns the time, on `nowMs`; null: not yet known. */
  constructor(private readonly dueAt: () => number | null) {}

  /** True when work is due, false once the alarm is closed. Called by its one loop. */
  async wait(): Promise<boolean> {
    while (!this.#closed) {
      const at = this.dueAt();
      const left = at === null ? null : at - nowMs();
      if (left !== null && left <= 0) return true;
      await new Promise<void>((resolve) => {
        const timer = left === null ? undefined : setTimeout(resolve, Math.ceil(left));
        this.#plannedMs = at ?? Infinity;
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#plannedMs = null;
    }
    return false;
  }

  /** Wake the loop after a change, if it would sleep too long. */
  turn(): void {
    if (this.#plannedMs === null) return;
    const at = this.dueAt();
    if (at !== null && at < this.#plannedMs) this.#wake();
  }

  close(): void {
    this.#closed = true;
    this.#wake();
  }
}

/** A loop of the feeder: its alarm and its connection. */
class Line {
  readonly alarm: Alarm;
  connection: Connection | null = null;

  constructor(dueAt: () => number | null) {
    this.alarm = new Alarm(dueAt);
  }

  hangUp(): void {
    this.connection?.close();
    this.connection = null;
  }

  /** End the loop, even in the middle of a call. */
  close(): void {
    this.alarm.close();
    this.connection?.close();
  }
}

/** Callbacks of a feeder. */
export interface Listener {
  changed(): void;
  pulled(messages: number): void;
  settled(verdicts: number, notHeld: number): void;
  leaseLost(message: Message): void;
  failed(error: ClientError): void;
}

/** The connections of one consumer. `failure` is what ended it; null while running. */
export class Feeder {
  failure: Error | null = null;
  readonly #session: Session;
  readonly #servers: Servers;
  readonly #dialling: Dialling;
  readonly #listener: Listener;
  readonly #logger: Logger;
  readonly #closing = new AbortController();
  readonly #pulls: Line;
  /** Opens another connection to the server of the current pull connection. */
  #dialAgain: () => Promise<Connection>;
  readonly #homes = new Map<Home, Line>();
  /** The server of the pull that returned each home's leases. */
  readonly #metAt = new WeakMap<Home, () => Promise<Connection>>();
  readonly #loops = new Set<Promise<void>>();
  readonly #keeper: Keeper;

  constructor(
    session: Session,
    options: { servers: Servers; dialling: Dialling; listener: Listener; logger: Logger },
  ) {
    this.#session = session;
    this.#servers = options.servers;
    this.#dialling = { ...options.dialling, signal: this.#closing.signal };
    this.#listener = options.listener;
    this.#logger = options.logger;
    this.#dialAgain = this.#dialler();
    this.#pulls = new Line(() => session.pullAt());
    const reachedAt = (home: Home): string[] => {
      const pulledFrom = String(this.#servers.address);
      return home.address === null ? [pulledFrom] : [home.address, pulledFrom];
    };
    const kept = (lost: Message[]): void => {
      for (const message of lost) this.#listener.leaseLost(message);
      this.#listener.changed(); // messages that waited for their lease may go to handlers
    };
    this.#keeper = new Keeper(session, options.dialling, reachedAt, options.logger, kept);
  }

  /** Start to pull. */
  start(): void {
    this.#keeper.start();
    this.#spawn(this.#pullForever());
  }

  /** Wake loops whose work has become due after a change of the session. */
  turn(): void {
    this.#pulls.alarm.turn();
    for (const line of this.#homes.values()) line.alarm.turn();
  }

  /** End all loops and connections; requests in flight are cancelled. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#keeper.close();
    for (const line of [this.#pulls, ...this.#homes.values()]) line.close();
    await Promise.all(this.#loops);
  }

  get #closed(): boolean {
    return this.#closing.signal.aborted;
  }

  // ---- pulling ----------------------------------------------------------------------------------

  async #pullForever(): Promise<void> {
    while (this.failure === null && (await this.#pulls.alarm.wait())) {
      await this.#pullOnce();
      if (this.#closed) break;
      this.#meetHomes();
      this.#listener.changed();
    }
    this.#pulls.hangUp();
  }

  async #pullOnce(): Promise<void> {
    const [line, session] = [this.#pulls, this.#session];
    const { timeoutMs } = this.#dialling;
    try {
      if (line.connection === null || line.connection.closed) {
        session.pullsReconnect();
        this.#dialAgain = this.#dialler();
        line.connection = await this.#dialAgain();
        if (session.stopping) return; // during connecting
      }
      const request = session.beginPull(nowMs());
      this.turn(); // a waiting pull makes verdicts urgent
      const limitMs = request.maxLingerTime + timeoutMs;
      const response = await line.connection.call("pull", limitMs, request);
      const came = session.pullAnswered(response, nowMs());
      if (came > 0) this.#keeper.publish();
      this.#listener.pulled(came);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      session.pullFailed(nowMs(), Math.random());
      line.hangUp();
      if (this.#closed) return;
      if (triesElsewhere(error, session.pullFailures)) this.#servers.next();
      if (!error.retriable) this.failure = error;
      else if (isNews(session.pullFailures)) {
        this.#logger.warn(`orderlane: pull failed, retrying: ${error.message}`);
      }
      this.#listener.failed(error);
    }
  }

  // ---- settling and extending -------------------------------------------------------------------

  /** Keep one loop for each proxy that the session names. */
  #meetHomes(): void {
    const wanted = new Set(this.#session.homes.values());
    for (const home of wanted) {
      if (home.address === null) this.#metAt.set(home, this.#dialAgain);
      if (this.#homes.has(home)) continue;
      this.#metAt.set(home, this.#dialAgain);
      const line = new Line(() => this.#session.controlAt(home));
      this.#homes.set(home, line);
      this.#spawn(this.#controlForever(home, line));
    }
    for (const [home, line] of this.#homes) {
      if (wanted.has(home)) continue;
      this.#homes.delete(home);
      line.close();
    }
  }

  async #controlForever(home: Home, line: Line): Promise<void> {
    while (await line.alarm.wait()) {
      const control = this.#session.beginControl(home, nowMs());
      if (control === null) continue;
      try {
        if (line.connection === null || line.connection.closed) {
          line.connection = await this.#openHome(home);
        }
        this.#controlAnswered(home, control, await this.#call(line.connection, control));
      } catch (error) {
        if (!(error instanceof ClientError)) throw error;
        line.hangUp();
        this.#controlFailed(home, error);
      }
      this.#listener.changed();
    }
    line.hangUp();
  }

  #call(connection: Connection, control: Control): Promise<AckAnswer> {
    const { timeoutMs } = this.#dialling;
    if (control.method === "settle") return connection.call("settle", timeoutMs, control.request);
    return connection.call("extend", timeoutMs, control.request);
  }

  #controlAnswered(home: Home, control: Control, answer: AckAnswer): void {
    if (control.method === "settle" && home.settling !== null) {
      this.#listener.settled(home.settling.size, answer.notHeld?.length ?? 0);
    }
    for (const message of this.#session.controlAnswered(home, answer)) {
      this.#listener.leaseLost(message);
    }
  }

  #controlFailed(home: Home, error: ClientError): void {
    this.#keeper.catchUp(); // before the session drops what has expired
    const lost = this.#session.controlFailed(home, nowMs(), Math.random());
    if (this.#closed) return;
    if (isNews(home.failures)) {
      this.#logger.warn(`orderlane: settle or extend failed, retrying: ${error.message}`);
    }
    this.#listener.failed(error);
    for (const message of lost) this.#listener.leaseLost(message);
  }

  /**
   * Connect to the proxy that holds the leases. Its own name for itself may be unreachable, for
   * example behind a forwarded port; then connect to the address of the pull that returned them.
   * Never try another proxy: without these leases, its answer would be misleading.
   */
  async #openHome(home: Home): Promise<Connection> {
    const own = home.address === null ? null : readAddress(home.address);
    try {
      if (own !== null) return await Connection.open(own, this.#dialling);
    } catch (error) {
      if (!(error instanceof ConnectionLost)) throw error;
    }
    return (this.#metAt.get(home) ?? this.#dialAgain)();
  }

  /** Returns a function that connects to the current server of pulls, also later. */
  #dialler(): () => Promise<Connection> {
    const { address, round } = this.#servers;
    return () => Connection.open(address, this.#dialling, round);
  }

  // ---- loops ------------------------------------------------------------------------------------

  #spawn(loop: Promise<void>): void {
    const kept = loop
      .catch((error: unknown) => {
        // A bug: report it to the application.
        this.failure = error instanceof Error ? error : new Error(String(error));
        this.#listener.changed();
      })
      .finally(() => this.#loops.delete(kept));
    this.#loops.add(kept);
  }
}

function readAddress(text: string): Address | null {
  try {
    return parseAddress(text);
  } catch {
    return null;
  }
}
