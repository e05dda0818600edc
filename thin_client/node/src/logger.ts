/** Where a client says what people should know; `console` is one. */
export interface Logger {
  warn(text: string, detail?: unknown): void;
  error(text: string, detail?: unknown): void;
}
