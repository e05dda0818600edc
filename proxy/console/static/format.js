// Formats numbers, times and sizes.

import { dateAndTime } from "./zone.js";

export const NOTHING = "–";
export const UNKNOWN = "unknown";

/** Format an integer with thousands separators; a dash for null. */
export function count(value) {
  return value === null || value === undefined ? NOTHING : Math.round(value).toLocaleString("en-US");
}

/** Format a figure that may be unknown: never as 0, and never as a dash, which means none. */
export function figure(value) {
  return value === null || value === undefined ? UNKNOWN : count(value);
}

/** Return a sentence about each broker that did not answer a request, with its error. */
export function silentOf({ unanswered }) {
  return Object.entries(unanswered ?? {}).map(([broker, why]) => `${broker} did not answer: ${why}.`);
}

/** Format a rate in messages per second. */
export function rate(value) {
  if (value === null || value === undefined) return NOTHING;
  if (value === 0 || value >= 100) return count(value);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** Format a duration: 350 ms, 4.2 s, 3 min 5 s, 2 h 10 min, 3 d 4 h. */
export function age(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.floor(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** Format a time in the chosen zone; the date is omitted if it is today. */
export function moment(ms, now = Date.now()) {
  if (ms === null || ms === undefined) return NOTHING;
  const [date, time] = dateAndTime(ms);
  return date === dateAndTime(now)[0] ? time : `${date} ${time}`;
}

/** Format a size in bytes. */
export function bytes(value) {
  if (value === null || value === undefined) return NOTHING;
  if (value < 1024) return `${value} B`;
  const power = Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${(value / 1024 ** power).toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** Format a fraction as a percentage. */
export function share(value) {
  return value === null || value === undefined ? NOTHING : `${(value * 100).toFixed(value < 0.1 ? 2 : 1)} %`;
}

/** The proxy's name of the chain of a queue's messages that have no key of their own. */
const NO_KEY = "0xff";

/** Name an order key for people; null: the message has no order. */
export function keyName(key) {
  if (key === null) return "none";
  return key === NO_KEY ? "No key" : key || "(empty)";
}

/** Begin a heading or a sentence with an order key. */
export function keyTitle(key) {
  return key === NO_KEY ? keyName(key) : `Key ${key}`;
}

/** Format *value* by *write*; a value that may be unknown, never as a dash, which means none. */
export function known(value, write) {
  return value === null || value === undefined ? UNKNOWN : write(value);
}

/** "1 key", "2 keys", "an unknown number of keys". */
export function of(number, one, many = `${one}s`) {
  if (number === null || number === undefined) return `an unknown number of ${many}`;
  return `${count(number)} ${number === 1 ? one : many}`;
}
