/** The parts used of the library's CommonJS module, which has no types of its own. */
declare module "thrift" {
  class TCompactProtocol {
    constructor(transport: unknown);
    writeByte(value: number): void;
    writeString(value: unknown): void;
    writeBinary(value: unknown): void;
    writeVarint32(value: number): void;
    writeI64(value: unknown): void;
    readMessageBegin(): { fname: string; mtype: number; rseqid: number };
    readVarint32(): number;
    readI64(): number;
    readListBegin(): { etype: number; size: number };
    readMapBegin(): { ktype: number; vtype: number; size: number };
  }

  class TApplicationException extends Error {
    readonly type: number;
  }

  const Thrift: {
    readonly MessageType: { readonly CALL: 1; readonly REPLY: 2; readonly EXCEPTION: 3 };
    readonly TApplicationExceptionType: { readonly INTERNAL_ERROR: 6 };
    readonly TApplicationException: typeof TApplicationException;
  };

  const thrift: { TCompactProtocol: typeof TCompactProtocol; Thrift: typeof Thrift };
  export default thrift;
}
