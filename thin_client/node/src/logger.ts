/** Receives a client's warnings and errors; `console` is one. */
export interface Logger {
  warn(text: string, detail?: unknown): void;
  error(text: string, detail?: unknown): void;
}
