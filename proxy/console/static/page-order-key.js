// The order key: the one that holds, and what real messages say of those that it could be.

import { get, path } from "./api.js";
import { bars } from "./bars.js";
import { badge, empty, facts, h, labelled } from "./dom.js";
import { age, count, share } from "./format.js";
import { Table } from "./table.js";
import { topicChoice, withTopics } from "./topics.js";

export const title = "Order key";

export function open(ctx) {
  const present = h("div");
  ctx.overviews((overview) => {
    const group = overview.groups[ctx.group];
    if (!group) present.replaceChildren(empty(`This proxy has no group ${ctx.group}.`, "See whether it is in its settings."));
    else present.replaceChildren(...group.topics.map((topic) => topicCard(topic, group.queues.filter((queue) => queue.topic === topic.name))));
  });
  return [h("h2", {}, "The key that holds"), present, withTopics(ctx, judged)];
}

function topicCard(topic, queues) {
  const change = queues.find((queue) => queue.key_change)?.key_change;
  const older = queues.reduce((sum, queue) => sum + queue.older, 0);
  return h(
    "div",
    { class: "card" },
    h("h3", {}, topic.name),
    facts([
      ["Order key", topic.order_key === null ? "none: its messages are unordered" : h("code", {}, topic.order_key)],
      ["Version", [...new Set(queues.map((queue) => queue.key_version))].join(", ") || "–"],
      ["Keys with unfinished messages", count(queues.reduce((sum, queue) => sum + queue.keys, 0))],
      ["By the key before", older ? count(older) : undefined],
      ["Change", change ? badge({ word: change, kind: "busy" }) : undefined],
    ]),
  );
}

/** The form, and the report that it asks for: at once with what it begins with. */
function judged(ctx, topics) {
  const number = (name, fallback, attributes) => h("input", { type: "number", value: ctx.query.get(name) ?? fallback, required: fallback !== "", ...attributes });
  const topic = topicChoice(ctx, topics);
  const sample = number("sample", 2000, { min: 1, max: 10_000 });
  const workers = number("workers", 64, { min: 1, max: 1_000_000 });
  const half = number("service_ms", "", { min: 0.001, max: 86_400_000, step: "any" });
  const most = number("service_p99_ms", "", { min: 0.001, max: 86_400_000, step: "any" });
  const report = h("section", { "aria-label": "Report on order keys", "aria-live": "polite" });

  async function judge() {
    const asked = { topic: topic.value, sample: sample.value, workers: workers.value, service_ms: half.value, service_p99_ms: most.value };
    ctx.remember(asked);
    const found = await get(path("groups", ctx.group, "order-key"), asked, ctx);
    report.replaceChildren(...reportOf(ctx, found));
  }

  ctx.load(judge);
  return [
    h("h2", {}, "Keys that it could be"),
    h(
      "form",
      { class: "tools", onsubmit: (event) => { event.preventDefault(); ctx.load(judge); } },
      labelled("Topic", topic),
      labelled("Newest messages", sample),
      labelled("Handlers", workers),
      labelled("Half of them take, ms", half),
      labelled("99 % of them take, ms", most),
      h("button", { type: "submit" }, "Judge"),
    ),
    h("p", { class: "muted" }, "Without times for a message nothing is simulated."),
    report,
  ];
}

function reportOf(ctx, found) {
  if (!found.messages) return [empty(`Topic ${found.topic} has no message to look at that ${ctx.group} wants.`, "Send some, or see whether its tags let any pass.")];
  const { advice, simulation } = found;
  const judgements = new Map(advice.judgements.map((each) => [each.candidate, each]));
  const take = simulation ? simulation.take : advice.take;
  const figure = (name, label, write = count) => ({ name, label, number: true, cell: (row) => write(row[name]), order: (row) => row[name] });
  const table = new Table({
    caption: `Candidates of ${found.topic}`,
    key: (row) => row.candidate,
    nothing: "No candidate was found.",
    advice: "Name one to orderlane order-key lint.",
    columns: [
      { name: "candidate", label: "Candidate", mono: true, cell: (row) => row.candidate, order: (row) => row.candidate },
      { name: "verdict", label: "Verdict", cell: (row) => verdict(row, judgements.get(row.candidate), take) },
      figure("missing_share", "Missing", share),
      { name: "kinds", label: "Types", cell: (row) => Object.entries(row.kinds).map(([kind, many]) => `${kind} ${count(many)}`).join(", ") },
      figure("keys", "Keys"),
      figure("top1_share", "Hottest key", share),
      figure("top10_share", "Hottest 10", share),
      figure("top100_share", "Hottest 100", share),
      figure("scattered_keys", "In several queues"),
      figure("chains", "Chains"),
      figure("busiest_chain", "Longest chain"),
    ],
  });
  table.update(found.candidates);
  const strong = (candidate) => candidate === take;
  return [
    h("p", {}, take === null ? "Take none of these: " : ["Take ", h("code", {}, take), ": "], simulation ? simulation.why[0] : advice.why),
    h(
      "div",
      { class: `charts${simulation ? " by-two" : ""}` },
      bars(
        `Handlers that can be busy, of ${count(found.workers)}`,
        found.candidates.map((each) => ({ name: each.candidate, value: each.max_speedup, text: each.max_speedup.toFixed(1), strong: strong(each.candidate) })),
        found.workers,
      ),
      bars(
        "Share of the hottest key",
        found.candidates.map((each) => ({ name: each.candidate, value: each.top1_share, text: share(each.top1_share), strong: strong(each.candidate) })),
        1,
      ),
      ...(simulation ? timesOf(simulation, strong) : []),
    ),
    table.element,
    ...reasons("What speaks against candidates", advice.judgements.flatMap((each) => each.cautions.map((caution) => `${each.candidate}: ${caution}`))),
    ...reasons("What the simulation says", simulation ? simulation.why.slice(1) : []),
    h("p", { class: "muted" }, `By ${count(found.messages)} messages: ${found.source}. More of them: `, h("code", {}, `orderlane order-key ${simulation ? "simulate" : "lint"} ${ctx.group} --topic ${found.topic} --sample 1000000${simulation ? " --service-ms …" : ""}`), ". To change the key: ", h("code", {}, `orderlane order-key rollout ${ctx.group} …`), "."),
  ];
}

function timesOf(simulation, strong) {
  const row = (each, value, text) => ({ name: each.candidate, value, text, strong: strong(each.candidate) });
  const seconds = (value) => (value < 60 ? `${value.toPrecision(3)} s` : age(1000 * value));
  return [
    bars(`Time for all of them, ${simulation.service} each; ${seconds(simulation.ideal_s)} without any order`, simulation.candidates.map((each) => row(each, each.seconds, seconds(each.seconds)))),
    bars("99 % wait behind their key for at most", simulation.candidates.map((each) => row(each, each.key_wait.p99_ms, age(each.key_wait.p99_ms)))),
  ];
}

function verdict(row, judgement, take) {
  if (row.candidate === take) return { word: "best", kind: "ok" };
  if (!judgement.keeps_order) return { word: "keeps no order", kind: "bad" };
  return judgement.cautions.length ? { word: "with cautions", kind: "warn" } : "–";
}

function reasons(heading, sentences) {
  return sentences.length ? [h("h3", {}, heading), h("ul", {}, sentences.map((each) => h("li", {}, each)))] : [];
}
