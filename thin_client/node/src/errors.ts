/** Failures between a client and a proxy. Check `retriable` instead of the class. */

export type ErrorKind = "connection" | "refused" | "fault" | "protocol" | "send";

/** Base of the errors below. Their names are written out: a bundler may rename the classes. */
export abstract class ClientError extends Error {
  abstract readonly kind: ErrorKind;
  /** Whether a retry may help. */
  readonly retriable: boolean = false;

  /** Whether the connection remains usable. @internal */
  get leavesConnection(): boolean {
    return false;
  }
}

/** The connection failed, or ended before the answer. The request's effect is unknown. */
export class ConnectionLost extends ClientError {
  override readonly name = "ConnectionLost";
  override readonly kind = "connection";
  override readonly retriable = true;
  readonly #broke: boolean;

  constructor(message: string, { broke = false }: { broke?: boolean } = {}) {
    super(message);
    this.#broke = broke;
  }

  /** An established connection ended suddenly; reconnecting to the same proxy may help. */
  get broke(): boolean {
    return this.#broke;
  }
}

/** The proxy failed, or does not implement the method. */
export class ProxyFault extends ClientError {
  override readonly name = "ProxyFault";
  override readonly kind = "fault";
  override readonly retriable: boolean;

  constructor(message: string, { retriable }: { retriable: boolean }) {
    super(message);
    this.retriable = retriable;
  }
}

/** The answer violates the protocol: another kind of server, or a bug. */
export class ProtocolError extends ClientError {
  override readonly name = "ProtocolError";
  override readonly kind = "protocol";
}

/** The proxy refused the request. */
export class Refused extends ClientError {
  override readonly name = "Refused";
  override readonly kind = "refused";
  override readonly retriable: boolean;
  /**
   * 400: invalid request; 401: token; 403: not allowed; 404: no such group or topic; from 500:
   * retry.
   */
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
    this.retriable = code >= 500;
  }

  /** @internal */
  override get leavesConnection(): boolean {
    return true;
  }
}

/** Why a message is not known to be stored. */
export interface SendFailure {
  readonly reason: string;
  /** The proxy's code (`Result` in producer_proxy.thrift); null if no proxy answered. */
  readonly code: number | null;
  /** True if the message may have been stored. */
  readonly outcomeUnknown: boolean;
}

/** Messages were not stored, or their outcome is unknown. */
export class SendFailed extends ClientError {
  override readonly name = "SendFailed";
  override readonly kind = "send";
  /** Code of the first failure; null if no proxy answered. */
  readonly code: number | null;
  /** By message id, for each message of the call not known to be stored; all others are stored. */
  readonly failures: ReadonlyMap<string, SendFailure>;
  /**
   * Ids of all messages of the call, in order. Send again under the same id to allow deduplication.
   */
  readonly messageIds: readonly string[];

  constructor(
    message: string,
    options: {
      code: number | null;
      failures: ReadonlyMap<string, SendFailure>;
      messageIds: readonly string[];
    },
  ) {
    super(message);
    this.code = options.code;
    this.failures = options.failures;
    this.messageIds = options.messageIds;
  }

  /** True if some of the failed messages may have been stored. */
  get outcomeUnknown(): boolean {
    return [...this.failures.values()].some((each) => each.outcomeUnknown);
  }
}

/** The reason of an abort: the message may be delivered to another client. */
export class LeaseLost extends Error {
  override readonly name = "LeaseLost";
}

/** The reason of an abort: the drain timed out. */
export class DrainTimeout extends Error {
  override readonly name = "DrainTimeout";
}

/**
 * Add the frames of the caller to those of an error that was created elsewhere, such as in the
 * event of a socket: the application's own line is among them.
 */
export function seenHere<E extends Error>(error: E): E {
  const here: { stack?: string } = {};
  Error.captureStackTrace(here, seenHere);
  const known = error.stack ?? String(error);
  const frames = (here.stack ?? "").split("\n").slice(1);
  error.stack = [known, ...frames.filter((frame) => !known.includes(frame))].join("\n");
  return error;
}

/** A readable text for any thrown value. Never throws. */
export function textOf(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message || error.name : error);
  } catch {
    return shown(() => Object.prototype.toString.call(error)); // without a prototype, for example
  }
}

/** The text of what `read` returns, or one that says that it has none. Never throws. */
export function shown(read: () => unknown): string {
  try {
    return String(read());
  } catch {
    return "(its text cannot be shown)";
  }
}
