/**
 * The thin client: pull, handle, ack, and send. It never deals with offsets, rebalancing or
 * brokers.
 */

export {
  type BatchHandler,
  type BatchResult,
  Consumer,
  type ConsumerEvents,
  type Handler,
  type HandlerContext,
  type RunOptions,
} from "./consumer.js";
export type { TlsOptions } from "./connection.js";
export {
  ClientError,
  ConnectionLost,
  DrainTimeout,
  type ErrorKind,
  LeaseLost,
  ProtocolError,
  ProxyFault,
  Refused,
  SendFailed,
  type SendFailure,
} from "./errors.js";
export { keyHash } from "./key-hash.js";
export type { Logger } from "./logger.js";
export type { Message, TraceContext } from "./message.js";
export type { ConsumerOptions, ConsumerTrace, ProxyOptions } from "./options.js";
export { Defer, type Outcome, type OutcomeName, Reject, Retry } from "./outcome.js";
export { newMessageId, type Outgoing } from "./outgoing.js";
export { Producer, type ProducerOptions, type SendOptions } from "./producer.js";
export { Puller, type PullerOptions, type PullOptions } from "./puller.js";
export type { KeyBatch } from "./work.js";
