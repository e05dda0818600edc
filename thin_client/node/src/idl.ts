/**
 * The generated structs at run time: absent fields are null, and an i64 of the IDL is a number (see
 * compact.ts). Requests may be plain objects of these shapes.
 */

export interface WireMessage {
  key: string | null;
  value: Buffer | null;
  tag: string | null;
  offset: number | null;
  properties: Record<string, string> | null;
  leaseId: number | null;
  attempt: number | null;
  bornAtMs: number | null;
  orderKey: Buffer | null;
  messageId: string | null;
}

export interface Context {
  groupId: string | null;
  topic: string | null;
  qid: string | null;
}

export interface Nack {
  leaseId: number;
  retryAfterMs?: number;
  reject?: boolean;
  reason?: string;
}

export interface AckBatch {
  context: Context;
  acked: number[];
  nacked: Nack[];
  released: number[];
}

export interface PullRequest {
  groupId: string;
  topics: string[] | null;
  maxBatchSize: number;
  maxLingerTime: number;
  version: string;
  acks: AckBatch[] | null;
  requestId: string | null;
  clientId: string;
  maxRun: number | null;
  manyQueues: true;
  token: string | null;
}

export interface PullResponse {
  context: Context | null;
  messages: WireMessage[] | null;
  more: PullResponse[] | null;
  leaseMs: number | null;
  home: string | null;
}

export interface AckRequest {
  groupId: string;
  acks: AckBatch[];
  clientId: string;
  token: string | null;
}

export interface LeaseRef {
  context: Context;
  leaseId: number;
}

export interface ExtendRequest {
  groupId: string;
  leases: LeaseRef[];
  ms: number;
  clientId: string;
  token: string | null;
}

export interface AckAnswer {
  notHeld: LeaseRef[] | null;
}

export interface OutgoingMessage {
  topic: string;
  key: string | null;
  hashId: number | null;
  tags: string | null;
  partitionId: number;
  body: Buffer;
  version: string;
  properties: Record<string, string>;
  token: string | null;
}

export interface OutgoingDelay {
  topic: string;
  body: Buffer;
  tags: string | null;
  action: 1;
  /** Seconds since 1970. */
  timestamp: number;
  dmsgtype: 2;
  uuid: string;
  version: string;
  properties: Record<string, string>;
  token: string | null;
}

export interface SendResult {
  code: number | null;
  msg: string | null;
  /** For a batch not stored whole: one entry per message. */
  messages?: { code: number | null; msg: string | null }[] | null;
}

/** The methods that the client calls, with arguments and answers. */
export interface Methods {
  pull: { takes: [PullRequest]; gives: PullResponse };
  settle: { takes: [AckRequest]; gives: AckAnswer };
  extend: { takes: [ExtendRequest]; gives: AckAnswer };
  sendSync: { takes: [OutgoingMessage, number]; gives: SendResult };
  sendBatchSync: { takes: [OutgoingMessage[]]; gives: SendResult };
  sendDelaySync: { takes: [OutgoingDelay, number]; gives: SendResult };
}

export type Method = keyof Methods;
