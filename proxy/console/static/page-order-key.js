// The current order key, and a comparison of candidates by real messages.

import { get, path } from "./api.js";
import { bars } from "./bars.js";
import { badge, empty, facts, h, labelled } from "./dom.js";
import { age, count, of, share, UNKNOWN } from "./format.js";
import { Table } from "./table.js";
import { topicChoice, withTopics } from "./topics.js";

export const title = "Order key";

export function open(ctx) {
  const present = h("div");
  ctx.overviews((overview) => {
    const group = overview.groups[ctx.group];
    if (!group) present.replaceChildren(empty(`This proxy has no group ${ctx.group}.`, "Check the groups in its settings."));
    else present.replaceChildren(...group.topics.map((topic) => topicCard(topic, ...[group.queues, group.others].map((queues) => queues.filter((queue) => queue.topic === topic.name)))));
  });
  return [h("h2", {}, "Current order key"), present, withTopics(ctx, judged)];
}

/** *queues*: those of the topic that this proxy owns; of the *others* only their owners know these figures. */
function topicCard(topic, queues, others) {
  const change = queues.find((queue) => queue.key_change)?.key_change;
  const older = queues.reduce((sum, queue) => sum + queue.older, 0);
  return h(
    "div",
    { class: "card" },
    h("h3", {}, topic.name),
    facts([
      ["Order key", topic.order_key === null ? "none, unordered" : h("code", {}, topic.order_key)],
      ["Version", [...new Set(queues.map((queue) => queue.key_version))].join(", ") || UNKNOWN],
      ["Keys with unfinished messages", queues.length || !others.length ? count(queues.reduce((sum, queue) => sum + queue.keys, 0)) : UNKNOWN],
      ["Queues of this proxy", others.length ? `${count(queues.length)} of ${count(queues.length + others.length)}, which these figures cover` : undefined],
      ["Messages under the previous key", older ? count(older) : undefined],
      ["Rollout", change ? badge({ word: change, kind: "busy" }) : undefined],
    ]),
  );
}

/** The form and its report, which is loaded at once with the initial values. */
function judged(ctx, topics) {
  const number = (name, fallback, attributes) => h("input", { type: "number", value: ctx.query.get(name) ?? fallback, required: fallback !== "", ...attributes });
  const topic = topicChoice(ctx, topics);
  const sample = number("sample", 2000, { min: 1, max: 10_000 });
  const workers = number("workers", 64, { min: 1, max: 1_000_000 });
  const half = number("service_ms", "", { min: 0.001, max: 86_400_000, step: "any" });
  const most = number("service_p99_ms", "", { min: 0.001, max: 86_400_000, step: "any" });
  const hint = h("p", { class: "muted" }, "Give a handling time to simulate the candidates.");
  const report = h("section", { "aria-label": "Order key report", "aria-live": "polite" });

  async function judge() {
    const asked = { topic: topic.value, sample: sample.value, workers: workers.value, service_ms: half.value, service_p99_ms: most.value };
    ctx.remember(asked);
    const found = await get(path("groups", ctx.group, "order-key"), asked, ctx);
    hint.hidden = half.value !== "";
    report.replaceChildren(...reportOf(ctx, found));
  }

  ctx.load(judge);
  return [
    h("h2", {}, "Candidate order keys"),
    h(
      "form",
      { class: "tools", onsubmit: (event) => { event.preventDefault(); ctx.load(judge); } },
      labelled("Topic", topic),
      labelled("Sample, messages", sample),
      labelled("Handlers", workers),
      labelled("Median (p50) handling time, ms", half),
      labelled("p99 handling time, ms", most),
      h("button", { type: "submit" }, "Compare"),
    ),
    hint,
    report,
  ];
}

function reportOf(ctx, found) {
  if (!found.messages) return [empty(`Topic ${found.topic} has no messages for ${ctx.group}.`, "Send some, or check the group's tags.")];
  const { advice, simulation } = found;
  const judgements = new Map(advice.judgements.map((each) => [each.candidate, each]));
  const take = simulation ? simulation.take : advice.take;
  const figure = (name, label, write = count) => ({ name, label, number: true, cell: (row) => write(row[name]), order: (row) => row[name] });
  const table = new Table({
    caption: `Candidates for ${found.topic}`,
    key: (row) => row.candidate,
    nothing: "No candidates found.",
    advice: "Pass one to orderlane order-key lint.",
    columns: [
      { name: "candidate", label: "Candidate", mono: true, cell: (row) => row.candidate, order: (row) => row.candidate },
      { name: "verdict", label: "Verdict", cell: (row) => verdict(row, judgements.get(row.candidate), take) },
      figure("missing_share", "Missing", share),
      { name: "kinds", label: "Types", cell: (row) => Object.entries(row.kinds).map(([kind, many]) => `${kind} ${count(many)}`).join(", ") },
      figure("keys", "Keys"),
      figure("top1_share", "Hottest key", share),
      figure("top10_share", "Hottest 10", share),
      figure("top100_share", "Hottest 100", share),
      figure("scattered_keys", "Keys in several queues"),
      figure("chains", "Chains"),
      figure("busiest_chain", "Longest chain"),
    ],
  });
  table.update(found.candidates);
  const strong = (candidate) => candidate === take;
  return [
    h("p", {}, take === null ? "No candidate is recommended: " : ["Recommended: ", h("code", {}, take), ": "], simulation ? simulation.why[0] : advice.why),
    h(
      "div",
      { class: `charts${simulation ? " by-two" : ""}` },
      bars(
        `Maximum parallelism, of ${of(found.workers, "handler")}`,
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
    ...reasons("Cautions", advice.judgements.flatMap((each) => each.cautions.map((caution) => `${each.candidate}: ${caution}`))),
    ...reasons("Simulation", simulation ? simulation.why.slice(1) : []),
    h("p", { class: "muted" }, `Based on ${of(found.messages, "message")}: ${found.source}. For a larger sample: `, h("code", {}, `orderlane order-key ${simulation ? "simulate" : "lint"} ${ctx.group} --topic ${found.topic} --sample 1000000${simulation ? " --service-ms …" : ""}`), ". To change the key: ", h("code", {}, `orderlane order-key rollout ${ctx.group} …`), "."),
  ];
}

function timesOf(simulation, strong) {
  const row = (each, value, text) => ({ name: each.candidate, value, text, strong: strong(each.candidate) });
  const seconds = (value) => (value < 60 ? `${value.toPrecision(3)} s` : age(1000 * value));
  return [
    bars(`Total time, ${simulation.service} per message (unordered: ${seconds(simulation.ideal_s)})`, simulation.candidates.map((each) => row(each, each.seconds, seconds(each.seconds)))),
    bars("Wait behind the key, p99", simulation.candidates.map((each) => row(each, each.key_wait.p99_ms, age(each.key_wait.p99_ms)))),
  ];
}

function verdict(row, judgement, take) {
  if (row.candidate === take) return { word: "recommended", kind: "ok" };
  if (!judgement.keeps_order) return { word: "keeps no order", kind: "bad" };
  return judgement.cautions.length ? { word: "with cautions", kind: "warn" } : "–";
}

function reasons(heading, sentences) {
  return sentences.length ? [h("h3", {}, heading), h("ul", {}, sentences.map((each) => h("li", {}, each)))] : [];
}
