import { textOf } from "./errors.js";

/** Receives a client's warnings and errors; `console` is one. */
export interface Logger {
  warn(text: string, detail?: unknown): void;
  error(text: string, detail?: unknown): void;
}

/**
 * Returns a logger that never throws: otherwise an error would end a loop of the client, or a
 * handler's message would stay leased. Even the console throws for an error that it cannot show.
 */
export function guarded(logger: Logger): Logger {
  const log = (level: "warn" | "error", text: string, ...detail: [unknown?]): void => {
    try {
      logger[level](text, ...detail);
    } catch {
      try {
        logger[level]([text, ...detail.map(textOf)].join(": "));
      } catch {
        // there is no other place to report it
      }
    }
  };
  return {
    warn: (text, ...detail) => log("warn", text, ...detail),
    error: (text, ...detail) => log("error", text, ...detail),
  };
}
