/** Encodes calls and decodes answers with the generated clients. No I/O. */

import thrift from "thrift";
import consumerService from "#gen/ConsumerService.js";
import producerService from "#gen/ProducerService.js";
import { CompactReader, CompactWriter } from "./compact.js";
import { ClientError, ProtocolError, ProxyFault, Refused, textOf } from "./errors.js";
import type { Method, Methods } from "./idl.js";

const { MessageType, TApplicationException, TApplicationExceptionType } = thrift.Thrift;

/** A generated client, for one call. */
interface Stub {
  _seqid: number;
  [method: string]: unknown;
}

/** `pClass` creates the protocol object that a call is written to. */
type StubClass = new (output: unknown, pClass: unknown) => Stub;

const CONSUMER = (consumerService as unknown as { Client: StubClass }).Client;
const PRODUCER = (producerService as unknown as { Client: StubClass }).Client;

/** One call in flight. */
export interface Call<M extends Method> {
  readonly method: M;
  /** The bytes to send. */
  readonly frame: Buffer;
  /** Decode the answer. Rejects with Refused, ProxyFault or ProtocolError, naming the sender. */
  answer(frame: Buffer, sender: string): Promise<Methods[M]["gives"]>;
}

/** Encode a call. Throws the codec's error for arguments that cannot be encoded. */
export async function makeCall<M extends Method>(
  method: M,
  sequenceId: number,
  ...takes: Methods[M]["takes"]
): Promise<Call<M>> {
  const writer = new CompactWriter();
  const stub = new (method.startsWith("send") ? PRODUCER : CONSUMER)(
    { flush() {} },
    function protocol() {
      return writer;
    },
  );
  stub._seqid = sequenceId - 1;
  const given = (stub[method] as (...takes: unknown[]) => Promise<Methods[M]["gives"]>)(...takes);
  // Errors in the arguments are known at once; the answer is not.
  let broken: unknown;
  given.catch((error: unknown) => (broken = error));
  await null;
  if (broken !== undefined) throw broken;
  return {
    method,
    frame: writer.frame(),
    async answer(frame, sender) {
      receive(stub, method, sequenceId, frame);
      let answered: Methods[M]["gives"];
      try {
        answered = await given;
      } catch (error) {
        throw asClientError(error, method, sender);
      }
      if (isWithoutCode(answered)) {
        throw new ProtocolError(`${sender} answered ${method} without a code`);
      }
      return answered;
    },
  };
}

function receive(stub: Stub, method: Method, sequenceId: number, frame: Buffer): void {
  let header: { fname: string; mtype: number; rseqid: number };
  try {
    const reader = new CompactReader(frame);
    header = reader.readMessageBegin();
    const { fname, mtype, rseqid } = header;
    const known = mtype === MessageType.REPLY || mtype === MessageType.EXCEPTION;
    if (known && fname === method && rseqid === sequenceId) {
      (stub[`recv_${method}`] as (...all: unknown[]) => void)(reader, mtype, rseqid);
      return;
    }
  } catch (error) {
    // The codec throws arbitrary values for invalid bytes.
    throw new ProtocolError(`the answer to ${method} cannot be decoded: ${textOf(error)}`);
  }
  throw new ProtocolError(
    `${method} number ${sequenceId} was answered by message type ${header.mtype} for` +
      ` ${JSON.stringify(header.fname)} number ${header.rseqid}`,
  );
}

/** Whether it is the result of a send that says nothing: neither stored nor not stored. */
function isWithoutCode(answered: Methods[Method]["gives"]): boolean {
  if (!("code" in answered)) return false;
  return [answered, ...(answered.messages ?? [])].some(({ code }) => code === null);
}

/** Convert a generated client's rejection: a PullException, the server's fault, or a text. */
function asClientError(error: unknown, method: Method, sender: string): ClientError {
  if (error instanceof TApplicationException) {
    const retriable = error.type === TApplicationExceptionType.INTERNAL_ERROR;
    const text = `the proxy answered ${method} with a fault: ${error.message}`;
    return new ProxyFault(text, { retriable });
  }
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (error instanceof Error || (typeof error === "object" && code !== undefined)) {
    const number = typeof code === "number" ? code : 0;
    return new Refused(number, `${sender} refused ${method}: ${String(message)}`);
  }
  return new ProtocolError(`${sender} sent an empty answer to ${method}`);
}
