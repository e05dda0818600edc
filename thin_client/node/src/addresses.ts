/** Proxy addresses in text form. */

import { quoted } from "./arguments.js";

export const DEFAULT_PORT = 9713;
const ADDRESS = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:[\]]+))(?::(\d{1,5}))?$/;

/** The host and port of one proxy. */
export class Address {
  constructor(
    readonly host: string,
    readonly port: number,
  ) {}

  toString(): string {
    return this.host.includes(":") ? `[${this.host}]:${this.port}` : `${this.host}:${this.port}`;
  }
}

/** Parse `host:port`, `host` (port 9713) or `[IPv6]:port`; throws a TypeError for others. */
export function parseAddress(text: string): Address {
  const match = typeof text === "string" ? ADDRESS.exec(text.trim()) : null;
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3] ?? DEFAULT_PORT);
  if (host === undefined || !(port > 0 && port < 65536)) {
    throw new TypeError(
      `${quoted(text)} is not a proxy address: expected host:port, for example proxy:9713`,
    );
  }
  return new Address(host, port);
}

/** Parse one address, several separated by commas, or a list; throws a TypeError if it is empty. */
export function parseAddresses(servers: string | readonly string[]): Address[] {
  const texts = typeof servers === "string" ? servers.split(",") : servers;
  if (!Array.isArray(texts) || texts.length === 0) {
    throw new TypeError("no proxy address given: expected at least one host:port");
  }
  return texts.map(parseAddress);
}

/** The proxies of one client in rotation: after a failure the next one is tried. */
export class Servers {
  readonly #addresses: readonly Address[];
  #failures = 0;

  constructor(servers: string | readonly string[]) {
    this.#addresses = parseAddresses(servers);
  }

  /** The current address. */
  get address(): Address {
    return this.#addresses[this.#failures % this.#addresses.length] as Address;
  }

  /** Which of a name's addresses comes first; advances with each round through the list. */
  get round(): number {
    return Math.floor(this.#failures / this.#addresses.length);
  }

  get count(): number {
    return this.#addresses.length;
  }

  /** Advance to the next address. */
  next(): void {
    this.#failures++;
  }
}
