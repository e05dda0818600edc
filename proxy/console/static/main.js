// The frame around all pages: routing, stream state, tokens and keyboard.

import { button, h } from "./dom.js";
import { token } from "./api.js";
import { elsewhere } from "./dialog.js";
import { Live } from "./live.js";
import { moment } from "./format.js";
import { help, listen } from "./shortcuts.js";
import { themed } from "./theme.js";
import { askToken } from "./tokens.js";
import { zoned } from "./zone.js";
import * as audit from "./page-audit.js";
import * as brokers from "./page-brokers.js";
import * as clients from "./page-clients.js";
import * as deadLetters from "./page-dead-letters.js";
import * as group from "./page-group.js";
import * as groups from "./page-groups.js";
import * as keys from "./page-keys.js";
import * as leases from "./page-leases.js";
import * as messages from "./page-messages.js";
import * as orderKey from "./page-order-key.js";
import * as topic from "./page-topic.js";
import * as topicMessages from "./page-topic-messages.js";
import * as topics from "./page-topics.js";

const PAGES = { groups, topics, brokers, clients, audit };
const OF_GROUP = { "": group, keys, leases, "dead-letters": deadLetters, messages, "order-key": orderKey };
const OF_TOPIC = { "": topic, messages: topicMessages };
const PARTS = { groups: { kind: "group", pages: OF_GROUP }, topics: { kind: "topic", pages: OF_TOPIC } };
const main = document.getElementById("main");
const live = new Live();
let shown = null;

/**
 * Parse the address: #/groups/billing/keys?topic=orders → page, group and query; #/topics/orders →
 * page and topic.
 */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, name, rest] = path.split("/").map(decoded);
  const found = { query: new URLSearchParams(query ?? ""), first: first || "groups", group: null, topic: null, name: null, rest: "" };
  const part = PARTS[found.first];
  if (!part || !name) return { ...found, page: PAGES[found.first] };
  return { ...found, name, [part.kind]: name, rest: rest ?? "", page: part.pages[rest ?? ""] };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function navigation(at) {
  document.getElementById("nav").replaceChildren(
    ...Object.entries(PAGES).map(([name, page]) =>
      h("a", { href: `#/${name}`, "aria-current": at.first === name && !at.name ? "page" : null }, page.title),
    ),
  );
}

function partNavigation(at) {
  const { kind, pages } = PARTS[at.first];
  const base = `#/${at.first}/${encodeURIComponent(at.name)}`;
  return h(
    "nav",
    { class: "tabs", "aria-label": `${kind === "group" ? "Group" : "Topic"} ${at.name}` },
    Object.entries(pages).map(([name, page]) =>
      h("a", { href: name ? `${base}/${name}` : base, "aria-current": at.rest === name ? "page" : null }, page.title),
    ),
  );
}

function context(at) {
  const aborting = new AbortController();
  const problem = h("p", { class: "problem", role: "alert" });
  const { signal } = aborting;
  const looks = [];
  const regular = new Set();
  const errors = new Map(); // the last one of each regular look, and under null of all others
  const tell = () => {
    const shown = [...new Map([...errors.values()].map((error) => [error.message, error])).values()];
    const said = JSON.stringify(shown.map((error) => [error.message, error.owners]));
    if (problem.dataset.said === said) return; // announce a change only
    problem.dataset.said = said;
    problem.replaceChildren(...shown.flatMap((error, index) => [index ? "; " : "", error.message, ...elsewhere(error.owners)]));
  };
  const ctx = {
    ...at,
    live,
    signal,
    problem,
    /**
     * Run *look* and show the proxy's error if it fails; return whether it succeeded. An error stays
     * until the same regular look succeeds: another one may work meanwhile.
     */
    async load(look) {
      const place = regular.has(look) ? look : null;
      try {
        await look();
        errors.delete(place);
        tell();
        return true;
      } catch (error) {
        if (signal.aborted || error.name === "AbortError") return false;
        errors.set(place, error);
        tell();
        if (error.status === undefined) console.error(error);
        return false;
      }
    },
    /** Run *look* whenever the user asks for a refresh. */
    refreshed(look) {
      looks.push(() => ctx.load(look));
    },
    /** Run *look* now, and every *ms* while the page is visible. */
    every(ms, look) {
      let running = null;
      let wanted = false;
      regular.add(look);
      const run = async () => {
        do {
          wanted = false;
          await ctx.load(look);
        } while (wanted && !signal.aborted);
        running = null;
      };
      // A look under way may ask for something else than the page does by now: look once more after it.
      const again = () => {
        if (signal.aborted) return null;
        wanted = running !== null;
        running ??= run();
        return running;
      };
      looks.push(again);
      const timer = setInterval(() => document.hidden || running || again(), ms);
      signal.addEventListener("abort", () => clearInterval(timer));
      return again();
    },
    /** Call *take* with the latest overview now, and with each new one. */
    overviews(take) {
      live.addEventListener("overview", (event) => take(event.detail, live.before), { signal });
      if (live.overview) take(live.overview, live.before);
    },
    /** Replace the query of the address without a new history entry. */
    remember(query) {
      const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
      const [path] = location.hash.split("?");
      history.replaceState(null, "", text ? `${path}?${text}` : path);
    },
    again: () => Promise.all(looks.map((look) => look())),
    close: () => aborting.abort(),
  };
  return ctx;
}

function show({ focus = true } = {}) {
  shown?.close();
  const at = place();
  navigation(at);
  const ctx = context(at);
  shown = ctx;
  const title = at.page?.title ?? "Not found";
  document.title = [title, at.name, "orderlane"].filter(Boolean).join(" · ");
  const heading = at.name
    ? h("h1", {}, h("a", { href: `#/${at.first}`, class: "up" }, PAGES[at.first].title), " / ", at.name, at.rest && h("span", { class: "unseen" }, `: ${title}`))
    : h("h1", {}, title);
  main.replaceChildren(heading, ...(at.name ? [partNavigation(at)] : []), ctx.problem);
  if (at.page) main.append(...[at.page.open(ctx)].flat());
  else main.append(h("p", {}, "Page not found. ", h("a", { href: "#/groups" }, "All groups")));
  if (focus) main.focus({ preventScroll: true });
}

const STATES = {
  begins: ["", "connecting"],
  live: ["ok", "live"],
  polling: ["warn", "every 4 s"],
  away: ["bad", "no answer"],
  refused: ["bad", "refused"],
};

function tellState({ name, sentence, owners }) {
  const [kind, word] = STATES[name];
  const element = document.getElementById("live");
  element.className = `live ${kind}`;
  element.textContent = word;
  element.title = name === "polling" ? "the event stream failed; reconnecting" : sentence;
  const failed = name === "refused" || name === "away";
  main.classList.toggle("stale", failed);
  document.getElementById("proxy-banner").replaceChildren(
    ...(failed ? [h("p", {}, sentence, lastKnown(), ...elsewhere(owners), name === "refused" ? button(token.get() ? "Change token" : "Enter a token", () => wantToken({ wanted: true })) : null)] : []),
  );
}

/** Return since when the page shows old figures. */
function lastKnown() {
  return live.overview ? ` Everything below was so at ${moment(live.overview.at_ms)}.` : "";
}

/** Show the brokers that do not answer at the proxy. */
function tellBrokers({ brokers_away: away }) {
  const lines = Object.entries(away ?? {}).map(([broker, why]) => `${broker}: ${why}`);
  const sentence = `Brokers that do not answer: ${lines.join("; ")}. Figures of their queues are the last known ones.`;
  const banner = document.getElementById("broker-banner");
  if (banner.textContent === (lines.length ? sentence : "")) return; // announce a change only
  banner.replaceChildren(...(lines.length ? [h("p", {}, sentence)] : []));
}

function wantToken(how) {
  askToken(() => {
    live.again();
    show();
  }, how);
}

themed(document.getElementById("theme"));
zoned(document.getElementById("zone"), () => show({ focus: false }));
document.getElementById("help").addEventListener("click", help);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash selects the page
  main.focus();
});
listen({ again: () => shown?.again(), group: () => shown?.group });
live.addEventListener("state", (event) => tellState(event.detail));
live.addEventListener("overview", (event) => tellBrokers(event.detail));
window.addEventListener("token-wanted", () => wantToken());
window.addEventListener("hashchange", () => show());
tellState(live.state);
show({ focus: false });
live.start();
