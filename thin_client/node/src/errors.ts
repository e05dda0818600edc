/** What can go wrong between a client and a proxy. Ask `retriable`, never for the class. */

export type ErrorKind = "connection" | "refused" | "fault" | "protocol" | "send";

/** Base of the errors below. */
export abstract class ClientError extends Error {
  abstract readonly kind: ErrorKind;
  /** Whether trying again may help. */
  readonly retriable: boolean = false;
  /** Whether the connection can still be used. */
  readonly leavesConnection: boolean = false;

  override get name(): string {
    return this.constructor.name;
  }
}

/** The connection could not be made, or ended before the answer came. Effect unknown. */
export class ConnectionLost extends ClientError {
  override readonly kind = "connection";
  override readonly retriable = true;
  /** It stood, and ended suddenly; another one to the same proxy may do. */
  readonly broke: boolean;

  constructor(message: string, { broke = false }: { broke?: boolean } = {}) {
    super(message);
    this.broke = broke;
  }
}

/** The proxy answered that it failed, or does not know the method. */
export class ProxyFault extends ClientError {
  override readonly kind = "fault";
  override readonly retriable: boolean;

  constructor(message: string, { retriable }: { retriable: boolean }) {
    super(message);
    this.retriable = retriable;
  }
}

/** The answer is not what the contract says: another kind of server, or a bug. */
export class ProtocolError extends ClientError {
  override readonly kind = "protocol";
}

/** The proxy refused the request. */
export class Refused extends ClientError {
  override readonly kind = "refused";
  override readonly leavesConnection = true;
  override readonly retriable: boolean;
  /** 400: the request is wrong; 404: no such group or topic; from 500 on: later or elsewhere. */
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
    this.retriable = code >= 500;
  }
}

/** Why one message is not known to be stored. */
export interface SendFailure {
  readonly reason: string;
  /** The proxy's code (`Result` in producer_proxy.thrift); null if no proxy answered. */
  readonly code: number | null;
  /** True if it may be stored nevertheless. */
  readonly outcomeUnknown: boolean;
}

/** A message, or a part of a batch, was not stored, or nobody knows whether it was. */
export class SendFailed extends ClientError {
  override readonly kind = "send";
  /** Of the first failure; null if no proxy answered. */
  readonly code: number | null;
  /** By message id, for each message of the call that is not known to be stored; all others are. */
  readonly failures: ReadonlyMap<string, SendFailure>;
  /** Of all messages of the call, in their order. Sent again under its id, a message is known. */
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

  /** True if some of the failed ones may be stored nevertheless. */
  get outcomeUnknown(): boolean {
    return [...this.failures.values()].some((each) => each.outcomeUnknown);
  }
}

/** The reason of an abort: someone else may get the message now. */
export class LeaseLost extends Error {
  override readonly name = "LeaseLost";
}

/** The reason of an abort: the consumer stops, and the time for that is up. */
export class DrainTimeout extends Error {
  override readonly name = "DrainTimeout";
}

/** The text of anything that was thrown, for a sentence. */
export function textOf(error: unknown): string {
  if (error instanceof Error) return error.message || error.name;
  try {
    return String(error);
  } catch {
    return Object.prototype.toString.call(error); // it has no text, such as one without prototype
  }
}
