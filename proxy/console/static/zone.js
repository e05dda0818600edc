// Time zone of shown and entered times: local time or UTC; stored in this browser.

import { ApiError } from "./api.js";
import { h } from "./dom.js";

const PLACE = "orderlane.zone";
const TIME = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?(Z|[+-]\d\d:\d\d)?$/;

let utc = localStorage.getItem(PLACE) === "utc";

const two = (number) => String(number).padStart(2, "0");

/** Return the date and the time of *ms*: ["2026-01-31", "14:00:05"]; a number beyond the calendar as such. */
export function dateAndTime(ms) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return [String(ms), "ms since 1970"];
  // The shifted time has in UTC the digits of the local time.
  const shown = utc ? at : new Date(ms - at.getTimezoneOffset() * 60_000);
  const [year, month, day] = [shown.getUTCFullYear(), shown.getUTCMonth() + 1, shown.getUTCDate()];
  return [`${year}-${two(month)}-${two(day)}`, [shown.getUTCHours(), shown.getUTCMinutes(), shown.getUTCSeconds()].map(two).join(":")];
}

/** Return *text*, such as 2026-01-31 14:00, in ms since 1970; NaN if it is no time, or a day that its month does not have. */
export function timeOf(text) {
  const found = TIME.exec(text.trim()); // Date.parse alone reads 812 as a year
  if (!found) return NaN;
  const [, year, month, day, hours, minutes, seconds = "00", part = "0", zone] = found;
  if (Number(day) > new Date(Date.UTC(year, month, 0)).getUTCDate()) return NaN; // Date.parse goes on into the next month
  const written = `${year}-${month}-${day}T${hours}:${minutes}:${seconds}.${part.padEnd(3, "0")}`;
  return Date.parse(written + (zone ?? (utc ? "Z" : "")));
}

/** Return the time that *text* says; throw an ApiError with an example if it is no time. */
export function givenTime(text) {
  const ms = timeOf(text);
  if (Number.isNaN(ms)) throw new ApiError(400, `invalid time "${text}": write it as ${dateAndTime(Date.now() - 90_000_000).join(" ")}`);
  return ms;
}

/** Return the name of the zone, for hints: "UTC", or "local time, UTC+1". */
export function zoneName() {
  return utc ? "UTC" : `local time, ${offset()}`;
}

function offset() {
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${two(rest)}` : ""}`;
}

/** Let *button* switch the zone; *changed* shows times again. */
export function zoned(button, changed) {
  function show() {
    const zone = utc ? "UTC" : `local, ${offset()}`;
    button.replaceChildren(h("span", { class: "wide-only" }, "Times: "), zone);
    button.setAttribute("aria-label", `Times: ${zone}`);
    button.title = `Switch to ${utc ? `local time (${Intl.DateTimeFormat().resolvedOptions().timeZone})` : "UTC"}`;
  }
  button.addEventListener("click", () => {
    utc = !utc;
    localStorage.setItem(PLACE, utc ? "utc" : "local");
    show();
    changed();
  });
  show();
}
