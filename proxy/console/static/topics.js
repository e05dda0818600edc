// The topics of a group, known after the first overview.

import { choice, empty, h } from "./dom.js";

/** Wait for the first overview and return the topic names of the group of *ctx*. */
export function knownTopics(ctx) {
  return new Promise((resolve) => {
    const look = () => {
      const { overview } = ctx.live;
      if (overview) resolve((overview.groups[ctx.group]?.topics ?? []).map((topic) => topic.name));
      return Boolean(overview);
    };
    if (!look()) ctx.live.addEventListener("overview", look, { once: true, signal: ctx.signal });
  });
}

/** Return an element for the result of *make*, filled once the topics are known. */
export function withTopics(ctx, make) {
  const root = h("div");
  knownTopics(ctx).then((topics) => {
    if (ctx.signal.aborted) return;
    if (topics.length) root.append(...make(ctx, topics));
    else root.append(empty(`This proxy has no topics of ${ctx.group}.`, "Check the groups in its settings."));
  });
  return root;
}

/** Create a select of *topics*, initially the topic of the address if it is one of them. */
export function topicChoice(ctx, topics) {
  const given = ctx.query.get("topic");
  return choice(topics.map((name) => [name, name]), topics.includes(given) ? given : topics[0]);
}
