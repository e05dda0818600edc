/** A scripted proxy for tests, which answers with the generated processors. */

import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import consumerService from "#gen/ConsumerService.js";
import producerService from "#gen/ProducerService.js";
import { CompactReader, CompactWriter } from "../src/compact.js";
import { FrameBuffer } from "../src/frames.js";
import type {
  AckAnswer,
  AckRequest,
  ExtendRequest,
  OutgoingDelay,
  OutgoingMessage,
  PullRequest,
  PullResponse,
  SendResult,
  WireMessage,
} from "../src/idl.js";

type Processor = new (handler: object) => { process(input: object, output: object): void };
const CONSUMER = (consumerService as unknown as { Processor: Processor }).Processor;
const PRODUCER = (producerService as unknown as { Processor: Processor }).Processor;

export class FakeProxy {
  address = "";
  leaseMs = 2_000;
  /** The proxy that holds the leases; null: this one. */
  home: FakeProxy | null = null;
  readonly pulls: PullRequest[] = [];
  readonly settles: AckRequest[] = [];
  readonly extends: ExtendRequest[] = [];
  readonly sends: OutgoingMessage[] = [];
  readonly delays: OutgoingDelay[] = [];
  /** Answers to the next sends; after them, every message is stored. */
  readonly results: SendResult[] = [];
  /** The answer to pulls from now on, instead of messages. */
  refusal: Error | null = null;
  /** Expired leases. */
  readonly over = new Set<number>();
  /** Number of next calls whose answers are lost: the connection is cut after handling them. */
  cuts = 0;
  #ready: WireMessage[] = [];
  #leases = 0;
  #wake: () => void = () => {};
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor() {
    this.#server = createServer((socket) => this.#serve(socket));
  }

  static async open(): Promise<FakeProxy> {
    const proxy = new FakeProxy();
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    proxy.address = `127.0.0.1:${(proxy.#server.address() as AddressInfo).port}`;
    return proxy;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#wake();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Make messages ready; lease ids count from 1. */
  put(...messages: { key?: string; body?: string; properties?: Record<string, string> }[]): void {
    for (const { key = null, body = "{}", properties = null } of messages) {
      const leaseId = ++this.#leases;
      const orderKey = key === null ? null : Buffer.from(key);
      const known = {
        tag: null,
        attempt: 1,
        bornAtMs: 1_700_000_000_000,
        messageId: `M${leaseId}`,
      };
      const value = Buffer.from(body);
      this.#ready.push({
        ...known,
        key,
        value,
        offset: leaseId - 1,
        properties,
        leaseId,
        orderKey,
      });
    }
    this.#wake();
  }

  /** Cut all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** All verdicts so far, in order of arrival: `1 ok`. */
  get verdicts(): string[] {
    return [...this.pulls, ...this.settles].flatMap(({ acks }) =>
      (acks ?? []).flatMap(({ acked, nacked, released }) => [
        ...(acked ?? []).map((lease) => `${lease} ok`),
        ...(nacked ?? []).map(({ leaseId, reject }) => `${leaseId} ${reject ? "reject" : "retry"}`),
        ...(released ?? []).map((lease) => `${lease} defer`),
      ]),
    );
  }

  #serve(socket: Socket): void {
    const frames = new FrameBuffer();
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket)).on("error", () => {});
    socket.on("data", (chunk) => {
      frames.receive(chunk);
      const frame = frames.next();
      if (frame === null) return;
      const sends = frame.includes("send");
      const writer = new CompactWriter();
      const flush = (): void => {
        if (this.cuts > 0) {
          this.cuts--;
          socket.destroy();
        } else socket.write(writer.frame());
      };
      Object.assign(writer, { flush });
      new (sends ? PRODUCER : CONSUMER)(this).process(new CompactReader(frame), writer);
    });
  }

  // ---- called by the processors -----------------------------------------------------------------

  async pull(request: PullRequest): Promise<PullResponse> {
    this.pulls.push(request);
    const until = Date.now() + Math.min(request.maxLingerTime, 100); // tests wait for it
    while (this.#ready.length === 0 && this.refusal === null && Date.now() < until) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, until - Date.now());
      });
    }
    if (this.refusal !== null) throw this.refusal;
    const messages = this.#ready.splice(0, request.maxBatchSize);
    const context = { groupId: "g", topic: "orders", qid: "broker-a_0#1" };
    return { context, messages, more: null, leaseMs: this.leaseMs, home: (this.home ?? this).address };
  }

  async settle(request: AckRequest): Promise<AckAnswer> {
    this.settles.push(request);
    return { notHeld: [] };
  }

  async extend(request: ExtendRequest): Promise<AckAnswer> {
    this.extends.push(request);
    return { notHeld: request.leases.filter(({ leaseId }) => this.over.has(Number(leaseId))) };
  }

  // By its number of parameters the processor sees that it takes no callback.
  async sendSync(message: OutgoingMessage, _timeout: number): Promise<SendResult> {
    this.sends.push(message);
    return this.results.shift() ?? { code: 0, msg: "OK" };
  }

  async sendBatchSync(messages: OutgoingMessage[]): Promise<SendResult> {
    this.sends.push(...messages);
    return this.results.shift() ?? { code: 0, msg: "OK" };
  }

  async sendDelaySync(message: OutgoingDelay, _timeout: number): Promise<SendResult> {
    this.delays.push(message);
    return this.results.shift() ?? { code: 18, msg: "delays are not supported" };
  }
}

/** Wait for the condition. */
export async function until(condition: () => boolean): Promise<void> {
  const limit = Date.now() + 60_000; // a machine may stall
  while (!condition()) {
    if (Date.now() > limit) throw new Error(`timed out: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
