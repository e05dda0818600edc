/** Thrift's framing: a 4-byte big-endian length and that many bytes. Pure. */

import { ProtocolError } from "./errors.js";

/**
 * Limits an answer to 32 MiB: the maximum of the proxy's limits.max_answer_bytes, plus one message
 * inflated to 16 MiB.
 */
export const MAX_FRAME_BYTES = 33_554_432;

/** Splits received bytes into frames; holds at most one frame and the bytes behind it. */
export class FrameBuffer {
  #chunks: Buffer[] = [];
  #bytes = 0;
  #needed = 4; // bytes needed before parsing

  /** Add received bytes. */
  receive(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
  }

  /** The next whole frame, or null. Throws ProtocolError for an invalid length. */
  next(): Buffer | null {
    if (this.#bytes < this.#needed) return null;
    const all = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks);
    this.#chunks = [all];
    const length = all.readInt32BE(0);
    if (!(length > 0 && length <= MAX_FRAME_BYTES)) {
      throw new ProtocolError(
        `the answer begins with ${JSON.stringify(all.toString("latin1", 0, 4))}, which is not a` +
          " Thrift frame length: is this the Thrift port of an orderlane proxy?",
      );
    }
    this.#needed = 4 + length;
    if (all.length < this.#needed) return null;
    const frame = all.subarray(4, this.#needed);
    const rest = all.subarray(this.#needed);
    this.#chunks = rest.length > 0 ? [rest] : [];
    this.#bytes = rest.length;
    this.#needed = 4;
    return frame;
  }
}
