// The topics of a group: known once the first overview is there.

import { choice, empty, h } from "./dom.js";

/** Wait for the first overview; the names of the topics that the group of *ctx* consumes. */
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

/** What *make* gives of them, once they are known; a sentence if there are none. */
export function withTopics(ctx, make) {
  const root = h("div");
  knownTopics(ctx).then((topics) => {
    if (ctx.signal.aborted) return;
    if (topics.length) root.append(...make(ctx, topics));
    else root.append(empty(`This proxy knows no topics of ${ctx.group}.`, "See whether the group is in its settings."));
  });
  return root;
}

/** A choice of one of *topics*; at first that of the address, if it is one of them. */
export function topicChoice(ctx, topics) {
  const given = ctx.query.get("topic");
  return choice(topics.map((name) => [name, name]), topics.includes(given) ? given : topics[0]);
}
