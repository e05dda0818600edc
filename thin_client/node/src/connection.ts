/** A connection to a proxy. */

import { randomInt } from "node:crypto";
import { lookup } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { connect, isIP, type Socket } from "node:net";
import { connect as secure, type ConnectionOptions } from "node:tls";
import type { Address } from "./addresses.js";
import { makeCall } from "./calls.js";
import { ClientError, ConnectionLost, ProtocolError, textOf } from "./errors.js";
import { FrameBuffer } from "./frames.js";
import type { Method, Methods } from "./idl.js";

/** TLS options. PEM files are read for each connection. */
export interface TlsOptions {
  /** Trusted authorities. Default: those of Node. */
  caFile?: string;
  /** The client's certificate and key, for proxies that require one. */
  certFile?: string;
  keyFile?: string;
  /** The name in the proxy's certificate, if it differs from the host dialled. */
  serverName?: string;
}

/** Options of all connections of a client. */
export interface Dialling {
  readonly timeoutMs: number;
  /** null: no TLS. */
  readonly tls: TlsOptions | null;
  /** Aborts pending operations. */
  readonly signal?: AbortSignal;
}

/** A longer timer would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** The highest request number; 0 follows. */
const MAX_SEQUENCE_ID = 2 ** 31 - 1;

/** One connection, one call at a time. After any ClientError but Refused it is closed. */
export class Connection {
  readonly #address: Address;
  readonly #socket: Socket;
  readonly #frames = new FrameBuffer();
  /** Starts at random, to detect answers mixed up between two connections. */
  #sequenceId = randomInt(MAX_SEQUENCE_ID);
  #waiting: { resolve(frame: Buffer): void; reject(error: Error): void } | null = null;

  private constructor(address: Address, socket: Socket) {
    this.#address = address;
    this.#socket = socket;
    let why = "";
    socket.setNoDelay(true);
    socket.on("data", (chunk) => this.#receive(chunk));
    socket.on("error", (error) => (why = `: ${textOf(error)}`));
    socket.on("end", () => socket.destroy());
    socket.on("close", () =>
      this.#fail(new ConnectionLost(`${address} closed the connection${why}`, { broke: true })),
    );
  }

  /**
   * Connect. The name is resolved, and its addresses are tried in turn, starting with number
   * `round`. Rejects with ConnectionLost if all fail, or on timeout.
   */
  static async open(
    address: Address,
    { timeoutMs, tls, signal }: Dialling,
    round = 0,
  ): Promise<Connection> {
    const timeout = AbortSignal.timeout(Math.ceil(timeoutMs));
    const limit = signal === undefined ? timeout : AbortSignal.any([timeout, signal]);
    const until = performance.now() + timeoutMs;
    let failure: unknown;
    try {
      const secrets = tls === null ? null : await tlsOptions(address, tls);
      const found = await unlessAborted(lookup(address.host, { all: true }), limit);
      for (let place = 0; place < found.length; place++) {
        const host = found[(place + round) % found.length]!.address;
        // Share the time left, so that one silent address does not use it all.
        const share = Math.max((until - performance.now()) / (found.length - place), 1);
        const each = AbortSignal.any([limit, AbortSignal.timeout(Math.ceil(share))]);
        try {
          return new Connection(address, await dial(host, address.port, secrets, each));
        } catch (error) {
          failure = error;
          if (limit.aborted) break;
        }
      }
    } catch (error) {
      failure = error;
    }
    const why = timeout.aborted ? ` within ${seconds(timeoutMs)}` : `: ${textOf(failure)}`;
    throw new ConnectionLost(`no connection to ${address}${why}`);
  }

  /** True once either side has closed it. */
  get closed(): boolean {
    return this.#socket.destroyed;
  }

  /**
   * Call `method` and wait for its answer, at most `timeoutMs`. Rejects with ConnectionLost,
   * Refused, ProxyFault or ProtocolError.
   */
  async call<M extends Method>(
    method: M,
    timeoutMs: number,
    ...takes: Methods[M]["takes"]
  ): Promise<Methods[M]["gives"]> {
    this.#sequenceId = (this.#sequenceId + 1) & MAX_SEQUENCE_ID;
    const call = await makeCall(method, this.#sequenceId, ...takes);
    if (this.closed) {
      throw new ConnectionLost(`the connection to ${this.#address} is closed`, { broke: true });
    }
    const text = `${this.#address} did not answer ${method} within ${seconds(timeoutMs)}`;
    const limitMs = Math.min(Math.ceil(timeoutMs), LONGEST_TIMER_MS);
    let immediate: NodeJS.Immediate | undefined;
    const timer = setTimeout(() => {
      // After a blocked event loop the timer comes first, and the answer may be in the socket.
      immediate = setImmediate(() => this.#fail(new ConnectionLost(text)));
    }, limitMs);
    try {
      const frame = await new Promise<Buffer>((resolve, reject) => {
        this.#waiting = { resolve, reject };
        this.#socket.write(call.frame);
      });
      return await call.answer(frame, String(this.#address));
    } catch (error) {
      if (!(error instanceof ClientError && error.leavesConnection)) this.close();
      throw error;
    } finally {
      clearTimeout(timer);
      clearImmediate(immediate);
    }
  }

  /** Close the connection; a waiting call fails with ConnectionLost. */
  close(): void {
    this.#fail(new ConnectionLost(`the connection to ${this.#address} was closed`));
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    this.#frames.receive(chunk);
    try {
      const frame = this.#frames.next();
      if (frame === null) return;
      if (this.#waiting === null) {
        throw new ProtocolError(`${this.#address} sent an answer without a request`);
      }
      const { resolve } = this.#waiting;
      this.#waiting = null;
      resolve(frame);
    } catch (error) {
      this.#fail(error as Error);
      this.#socket.destroy();
    }
  }

  #fail(error: Error): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.reject(error);
  }
}

function seconds(ms: number): string {
  return `${Math.round(ms) / 1000} s`;
}

async function tlsOptions(address: Address, tls: TlsOptions): Promise<ConnectionOptions> {
  const { caFile, certFile, keyFile, serverName } = tls;
  const name = serverName ?? address.host;
  return {
    host: name, // must match the certificate
    ...(isIP(name) ? {} : { servername: name }),
    ...(caFile === undefined ? {} : { ca: await readFile(caFile) }),
    ...(certFile === undefined ? {} : { cert: await readFile(certFile) }),
    ...(keyFile === undefined ? {} : { key: await readFile(keyFile) }),
    minVersion: "TLSv1.2",
    rejectUnauthorized: true, // regardless of the environment
  };
}

/** Connect a socket, with TLS if `secrets` are given. */
function dial(
  host: string,
  port: number,
  secrets: ConnectionOptions | null,
  limit: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const plain = connect({ host, port });
    let socket: Socket = plain;
    const settle = (): void => {
      limit.removeEventListener("abort", abort);
      plain.off("error", fail);
      socket.off("error", fail);
      socket.off("close", fail);
    };
    const fail = (error: unknown): void => {
      settle();
      for (const each of [socket, plain]) each.on("error", () => {}).destroy();
      reject(error instanceof Error ? error : new Error("closed at once"));
    };
    const abort = (): void => fail(new Error("timed out"));
    limit.addEventListener("abort", abort);
    plain.on("error", fail);
    try {
      if (secrets !== null) socket = secure({ ...secrets, socket: plain });
    } catch (error) {
      fail(error); // of the files, which may just be replaced
      return;
    }
    socket.on("error", fail);
    socket.on("close", fail);
    socket.once(secrets === null ? "connect" : "secureConnect", () => {
      settle();
      if (socket !== plain) plain.on("error", () => {}); // reported by the outer socket
      resolve(socket);
    });
    if (limit.aborted) abort();
  });
}

function unlessAborted<T>(promise: Promise<T>, limit: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(new Error("timed out"));
    limit.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => limit.removeEventListener("abort", abort));
    if (limit.aborted) abort();
  });
}
