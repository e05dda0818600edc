/** Thrift's framing: a 4-byte big-endian length and that many bytes. Pure. */

import { ProtocolError } from "./errors.js";

/**
 * Longest answer taken: 32 MiB, for the most that limits.max_answer_bytes of a proxy lets, and one
 * message more, inflated to 16 MiB.
 */
export const MAX_FRAME_BYTES = 33_554_432;

/** Cuts what was received into frames; holds at most one frame and what came after it. */
export class FrameBuffer {
  #chunks: Buffer[] = [];
  #bytes = 0;
  #needed = 4; // before it is worth a look

  /** Take what was read. */
  receive(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
  }

  /** The next whole frame, or null. Throws ProtocolError for a length out of bounds. */
  next(): Buffer | null {
    if (this.#bytes < this.#needed) return null;
    const all = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks);
    this.#chunks = [all];
    const length = all.readInt32BE(0);
    if (!(length > 0 && length <= MAX_FRAME_BYTES)) {
      throw new ProtocolError(
        `the answer begins with ${JSON.stringify(all.toString("latin1", 0, 4))}, which is no` +
          " length of a Thrift frame: is this the Thrift port of an orderlane proxy?",
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
