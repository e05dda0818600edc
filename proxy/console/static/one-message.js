// Details of one message of a topic, its state in a group, and a copy of it to send.

import { get, path } from "./api.js";
import { bodyView, propertiesView } from "./body.js";
import { commandLine, copyButton } from "./copying.js";
import { badge, button, choice, facts, h, labelled } from "./dom.js";
import { age, bytes, count, keyName, moment } from "./format.js";
import { keyLink } from "./groups.js";
import { askResend } from "./topic-acts.js";

const KINDS = { waiting: "busy", leased: "busy", delivered: "warn", parked: "bad", "dead-lettered": "bad", finished: "ok", unknown: "idle" };

/** The open message of a page; *changed* is called with its location, or "" when it is closed. */
export class OneMessage {
  constructor(ctx, changed) {
    this.ctx = ctx;
    this.changed = changed;
    this.place = "";
    this.element = h("section", { class: "one", hidden: true, "aria-label": "One message" });
  }

  /** Show the message at *place*, such as broker-a_0@17. */
  async show(place) {
    const { ctx } = this;
    const message = await get(path("topics", ctx.topic, "messages", "show"), { message: place }, ctx);
    this.place = place;
    this.element.hidden = false;
    this.element.replaceChildren(...this.parts(message));
    this.element.scrollIntoView({ block: "nearest" });
    this.changed(place);
  }

  close() {
    this.place = "";
    this.element.hidden = true;
    this.changed("");
  }

  parts(message) {
    const { topic } = this.ctx;
    return [
      h("h2", {}, "Message ", h("span", { class: "mono" }, message.message), copyButton(message.message, `location ${message.message}`)),
      facts([
        ["Queue", message.queue],
        ["Offset", h("span", {}, count(message.offset), copyButton(String(message.offset), `offset ${message.offset}`))],
        ["Message key", message.keys === null ? "none" : h("span", { class: "mono" }, message.keys, copyButton(message.keys, `key ${message.keys}`))],
        ["Tag", message.tag ?? "none"],
        ["Created", moment(message.born_ms)],
        ["Stored", moment(message.store_ms)],
        ["Size", bytes(message.bytes)],
        ["Id", h("span", { class: "mono" }, message.message_id, copyButton(message.message_id, "message id"))],
      ]),
      this.stateIn(message),
      bodyView(message),
      propertiesView(message.properties),
      h(
        "div",
        { class: "tools" },
        button("Send again…", () => askResend(topic, message, (place) => this.ctx.load(() => this.show(place)))),
        button("Close", () => this.close()),
      ),
      commandLine(["messages", "show", topic, message.message]),
    ];
  }

  /** Return a choice of the groups that consume the topic, with the state of *message* in one. */
  stateIn(message) {
    const { ctx } = this;
    const groups = Object.entries(ctx.live.overview?.groups ?? {}).filter(([, group]) => group.topics.some((each) => each.name === ctx.topic));
    if (!groups.length) return null;
    const said = h("p", { role: "status" });
    const group = choice([["", "choose a group"], ...groups.map(([name]) => [name, name])], "");
    group.addEventListener("change", () =>
      ctx.load(async () => {
        said.replaceChildren();
        if (!group.value) return;
        const found = await get(path("topics", ctx.topic, "messages", "show"), { message: message.message, group: group.value }, ctx);
        said.replaceChildren(...stateOf(ctx.topic, found.state));
      }),
    );
    return h("div", { class: "tools" }, labelled("State in group", group), said);
  }
}

function stateOf(topic, state) {
  const more = [
    state.key !== null && h("span", {}, ", order key ", h("a", { class: "mono", href: keyLink(state.group, topic, state.key) }, keyName(state.key))),
    state.attempt !== null && `, attempt ${state.attempt}`,
    state.client && `, held by ${state.client}`,
    state.ends_in_ms !== null && `, lease ends in ${age(state.ends_in_ms)}`,
  ];
  return [badge({ word: state.state, kind: KINDS[state.state] ?? "idle" }), ...more.filter(Boolean)];
}
