/**
 * Thrift's compact protocol over one frame in memory. Hot code and 64-bit numbers are
 * reimplemented: they use plain numbers instead of an object for each, and never read beyond the
 * frame, whatever lengths it claims.
 */

import thrift from "thrift";

/** Limits the elements of a list or map, so that a hostile length does not cost memory. */
const MAX_CONTAINER = 1_000_000;

/** One frame's bytes, read from the start. */
class Input {
  position = 0;

  constructor(readonly bytes: Buffer) {}

  readByte(): number {
    const byte = this.bytes[this.position];
    if (byte === undefined) throw new RangeError("the frame is incomplete");
    this.position++;
    return (byte << 24) >> 24;
  }

  read(length: number): Buffer {
    return this.bytes.subarray(this.#pass(length), this.position);
  }

  readString(length: number): string {
    return this.bytes.toString("utf8", this.#pass(length), this.position);
  }

  #pass(length: number): number {
    const begin = this.position;
    if (!(length >= 0 && length <= this.bytes.length - begin)) {
      throw new RangeError("the frame is incomplete");
    }
    this.position += length;
    return begin;
  }
}

/** One frame's bytes to write, including the length prefix. */
class Output {
  #bytes = Buffer.allocUnsafe(512);
  #length = 4;

  /** Part of thrift's interface; one frame is one message here. */
  setCurrSeqId(): void {}
  flush(): void {}

  byte(value: number): void {
    this.#need(1);
    this.#bytes[this.#length++] = value;
  }

  text(value: string): void {
    const length = Buffer.byteLength(value);
    this.varint(length);
    this.#need(length);
    this.#length += this.#bytes.write(value, this.#length, length, "utf8");
  }

  binary(value: Uint8Array): void {
    this.varint(value.length);
    this.#need(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
  }

  /** A number below 2^64, as far as doubles are exact. */
  varint(value: number): void {
    this.#need(10);
    while (value > 0x7f) {
      this.#bytes[this.#length++] = (value % 128) | 0x80;
      value = Math.floor(value / 128);
    }
    this.#bytes[this.#length++] = value;
  }

  /** Return the frame; the output must not be used afterwards. */
  frame(): Buffer {
    this.#bytes.writeInt32BE(this.#length - 4, 0);
    return this.#bytes.subarray(0, this.#length);
  }

  #need(more: number): void {
    if (this.#length + more <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(2 * (this.#length + more));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }
}

/** The protocol object that generated code writes to. */
export class CompactWriter extends thrift.TCompactProtocol {
  readonly #output: Output;

  constructor(output = new Output()) {
    super(output);
    this.#output = output;
  }

  /** Return the written frame, including the length prefix. */
  frame(): Buffer {
    return this.#output.frame();
  }

  override writeByte(value: number): void {
    this.#output.byte(value);
  }

  override writeString(value: unknown): void {
    this.writeBinary(value);
  }

  override writeBinary(value: unknown): void {
    if (typeof value === "string") this.#output.text(value);
    else if (value instanceof Uint8Array) this.#output.binary(value);
    else throw new TypeError(`a ${typeof value}: expected a string or bytes`);
  }

  override writeVarint32(value: number): void {
    this.#output.varint(value >>> 0);
  }

  override writeI64(value: unknown): void {
    if (!Number.isSafeInteger(value)) throw new RangeError(`${String(value)} is not an i64`);
    // A double holds twice a safe number exactly, so zigzag needs no 64 bits.
    const number = value as number;
    this.#output.varint(number >= 0 ? number * 2 : -(number * 2) - 1);
  }
}

/** The protocol object that generated code reads from. */
export class CompactReader extends thrift.TCompactProtocol {
  readonly #input: Input;

  constructor(frame: Buffer) {
    const input = new Input(frame);
    super(input);
    this.#input = input;
  }

  override readVarint32(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.#input.readByte();
      value |= (byte & 0x7f) << shift;
      if (byte >= 0) return value >>> 0;
    }
    throw new RangeError("a number of more than 32 bits");
  }

  override readListBegin(): { etype: number; size: number } {
    return checked(super.readListBegin());
  }

  override readMapBegin(): { ktype: number; vtype: number; size: number } {
    return checked(super.readMapBegin());
  }

  /** Read a number; beyond 2^53 it is inexact, and the caller must refuse it. */
  override readI64(): number {
    let value = 0;
    for (let place = 0, scale = 1; place < 10; place++, scale *= 128) {
      const byte = this.#input.readByte();
      value += (byte & 0x7f) * scale;
      if (byte >= 0) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
    throw new RangeError("a number of more than 64 bits");
  }
}

function checked<T extends { size: number }>(container: T): T {
  if (container.size > MAX_CONTAINER) throw new RangeError(`${container.size} elements`);
  return container;
}
