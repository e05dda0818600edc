// The overview as a stream of events, polled every few seconds if the stream fails. Stops while the
// page is hidden.

import { ApiError, get, headers, refuse } from "./api.js";

const SILENCE_MS = 15_000;
const POLL_MS = 4000;
const AGAIN_MS = 3000;

/** Fires "overview" for each overview, and "state" when ``state`` changes. */
export class Live extends EventTarget {
  constructor() {
    super();
    this.overview = null;
    this.before = null;
    this.state = { name: "begins", sentence: "" };
    this.abort = null;
  }

  start() {
    document.addEventListener("visibilitychange", () => this.turn());
    this.turn();
  }

  /** Connect again, for example with a new token. */
  again() {
    this.abort?.abort();
    this.abort = null;
    this.turn();
  }

  turn() {
    if (document.hidden) {
      this.abort?.abort();
      this.abort = null;
    } else if (!this.abort) {
      this.doubt();
      this.abort = new AbortController();
      this.follow(this.abort.signal);
    }
  }

  async follow(signal) {
    while (!signal.aborted) {
      const problem = await this.stream(signal);
      if (signal.aborted) return;
      if (problem?.status === 401 || problem?.status === 403 || problem?.status === 421) {
        this.say("refused", problem);
        return;
      }
      this.doubt();
      // The stream failed: poll until the next attempt.
      const until = Date.now() + AGAIN_MS;
      do {
        await this.poll(signal);
        await pause(Math.min(POLL_MS, AGAIN_MS), signal);
      } while (Date.now() < until && !signal.aborted);
    }
  }

  async stream(signal) {
    const own = new AbortController();
    const stop = () => own.abort();
    signal.addEventListener("abort", stop);
    let silence = setTimeout(stop, SILENCE_MS);
    try {
      const answer = await fetch("api/events", { headers: headers(), cache: "no-store", signal: own.signal });
      await refuse(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return null;
        clearTimeout(silence);
        silence = setTimeout(stop, SILENCE_MS);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) this.take(block);
      }
    } catch (error) {
      return error;
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", stop);
    }
  }

  take(block) {
    const data = block.split("\n").filter((line) => line.startsWith("data: "));
    if (data.length === 0) return;
    this.show(JSON.parse(data.map((line) => line.slice(6)).join("\n")));
    this.say("live");
  }

  async poll(signal) {
    try {
      const patience = AbortSignal.any([signal, AbortSignal.timeout(SILENCE_MS)]);
      this.show(await get("api/overview", {}, { signal: patience }));
      this.say("polling");
    } catch (error) {
      if (!signal.aborted) this.say("away", error);
    }
  }

  show(overview) {
    this.before = this.overview;
    this.overview = overview;
    this.dispatchEvent(new CustomEvent("overview", { detail: overview }));
  }

  /** Mark the shown overview as stale until the next one arrives. */
  doubt() {
    if (this.state.name === "live") this.say("begins");
  }

  say(name, error) {
    const sentence = error?.message ?? "";
    if (this.state.name === name && this.state.sentence === sentence) return;
    this.state = { name, sentence, owners: error instanceof ApiError ? error.owners : [] };
    this.dispatchEvent(new CustomEvent("state", { detail: this.state }));
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
