/** The mode `consume` of the conformance program. */

import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Consumer,
  Defer,
  DrainTimeout,
  type KeyBatch,
  LeaseLost,
  type Message,
  type OutcomeName,
  Reject,
  Retry,
} from "../src/index.js";
import { outcomeName, outcomeOf } from "../src/outcome.js";
import {
  errorOf,
  given,
  messageFields,
  type Options,
  orderText,
  proxyOptions,
  say,
} from "./conformance-lines.js";

interface Body {
  work_ms?: number;
  block_ms?: number;
  until?: "lost";
  stubborn?: boolean;
  do?: "ok" | "retry" | "reject" | "defer" | "raise" | "unrun" | "forget";
  after_ms?: number;
  reason?: string;
  times?: number;
}

/** Writes the history, if one is requested. */
class History {
  readonly #file: number | null;

  constructor(private readonly options: Options) {
    this.#file = options.history === undefined ? null : openSync(options.history, "a");
  }

  write(event: string, fields: object = {}): void {
    if (this.#file === null) return;
    const { clock_offset_ns: offset = 0, node = "" } = this.options;
    const line = {
      e: event,
      t_ns: Number(process.hrtime.bigint()) + offset,
      wall_ms: Date.now(),
      node,
    };
    writeSync(this.#file, `${JSON.stringify({ ...line, ...fields })}\n`);
  }

  handle(event: string, message: Message, fields: object = {}): void {
    if (this.#file === null) return;
    this.write(event, {
      group: this.options.group,
      topic: message.topic,
      queue: message.queue.replace(/#[^#]*$/, ""),
      offset: message.offset,
      msg: message.messageId,
      order: orderText(message),
      attempt: message.attempt,
      lease: message.leaseId,
      consumer: this.options.client_id ?? "",
      ...fields,
    });
  }
}

const NEVER = new Int32Array(new SharedArrayBuffer(4));

/** Handlers that follow the instructions in the message's body. */
class Program {
  handled = 0;
  readonly history: History;
  readonly #workMs: [number, number];
  /** No lines per message, and no instructions. */
  readonly #quiet: boolean;

  constructor(options: Options) {
    this.history = new History(options);
    this.#workMs = options.work_ms ?? [0, 0];
    this.#quiet = options.quiet ?? false;
  }

  begin(message: Message): void {
    this.history.handle("handle_start", message);
    if (!this.#quiet) say("start", messageFields(message));
  }

  end(message: Message, outcome: OutcomeName): void {
    if (outcome === "ok") this.handled++;
    this.history.handle("handle_end", message, { outcome });
    const { leaseId: lease, queue, offset } = message;
    if (!this.#quiet) say("end", { lease, queue, offset, outcome });
  }

  async handle(message: Message): Promise<unknown> {
    if (this.#quiet && this.#workMs[1] <= 0) return;
    const body = bodyOf(message);
    if (body.block_ms !== undefined) Atomics.wait(NEVER, 0, 0, body.block_ms);
    await this.#work(message, body);
    const does = message.attempt <= (body.times ?? Infinity) ? body.do : "ok";
    if (does === "retry") throw new Retry({ afterMs: body.after_ms });
    if (does === "reject") throw new Reject(body.reason);
    if (does === "defer") throw new Defer();
    if (does === "raise") throw new Error(body.reason);
    return does === "unrun" ? (function* () {})() : undefined;
  }

  async #work(message: Message, body: Body): Promise<void> {
    const [least, most] = this.#workMs;
    const ms = body.work_ms ?? least + Math.random() * (most - least);
    if (ms <= 0 && body.until === undefined) return;
    const { signal } = message;
    const lost = (): void => {
      const { leaseId: lease, queue } = message;
      if (signal.reason instanceof LeaseLost && !this.#quiet) say("lost", { lease, queue });
    };
    signal.addEventListener("abort", lost);
    try {
      const limitMs = body.until === "lost" ? 2 ** 31 - 1 : ms;
      await sleep(limitMs, undefined, body.stubborn ? {} : { signal });
    } catch {
      if (signal.reason instanceof DrainTimeout) throw signal.reason;
    } finally {
      signal.removeEventListener("abort", lost);
    }
  }

  /** Handle the batch in order, up to the first failure. */
  async handleBatch(batch: KeyBatch): Promise<void> {
    for (const message of batch) {
      this.begin(message);
      try {
        await this.handle(message);
        if (message.leaseLost) throw new Defer();
      } catch (thrown) {
        const drained = thrown instanceof DrainTimeout;
        this.end(message, drained ? "defer" : outcomeName(outcomeOf(thrown)));
        throw thrown;
      }
      this.end(message, "ok");
      batch.ok(message);
    }
  }
}

function bodyOf(message: Message): Body {
  try {
    const body = message.json<Body | null>();
    return typeof body === "object" && body !== null ? body : {};
  } catch {
    return {};
  }
}

/** Handle messages until SIGTERM; returns the exit code. */
export async function consume(options: Options): Promise<number> {
  const program = new Program(options);
  const consumer = new Consumer({
    ...proxyOptions(options),
    group: options.group,
    ...given({
      topics: options.topics,
      concurrency: options.concurrency,
      prefetch: options.prefetch,
      maxRun: options.max_run,
      clientId: options.client_id,
      ackLingerMs: options.ack_linger_ms,
      requestTimeoutMs: options.request_timeout_ms,
      drainTimeoutMs: options.drain_timeout_ms,
    }),
  });
  const { form = "handler" } = options;
  if (form !== "batches") {
    consumer.on("handleStart", (message) => program.begin(message));
    consumer.on("handleEnd", (message, outcome) => program.end(message, outcome));
  }
  consumer.on("error", (error) => say("error", errorOf(error)));
  program.history.write("start", { pid: process.pid, parts: ["consumer"] });
  let failure: unknown = null;
  try {
    const stopOn = ["SIGTERM"] as const;
    if (form === "handler") await consumer.run((message) => program.handle(message), { stopOn });
    else if (form === "batches") {
      await consumer.runBatches((batch) => program.handleBatch(batch), { stopOn });
    } else {
      for await (const message of consumer.messages({ stopOn })) {
        if (bodyOf(message).do !== "forget") await settled(program, message);
      }
    }
  } catch (error) {
    failure = error;
    await consumer.close();
  }
  program.history.write("stop");
  say("stopped", { handled: program.handled, error: failure === null ? null : errorOf(failure) });
  return failure === null ? 0 : 1;
}

async function settled(program: Program, message: Message): Promise<void> {
  try {
    await program.handle(message);
    message.ok();
  } catch (thrown) {
    message.fail(thrown);
  }
}
