"""Simulates candidates and ranks them, with reasons. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.advice import alone
from proxy.tuning.observed_times import ObservedTimes
from proxy.tuning.report import TuningReport
from proxy.tuning.sample import Sample
from proxy.tuning.simulator import Plan, Played, play, service_ns
from proxy.tuning.words import duration, number

#: Applies a function to several candidates, in order.
Each = Callable[[Callable[[str], "Simulated"], Iterable[str]], Iterable["Simulated"]]
_MS = 1e6
#: Durations within this ratio count as equal: runs on real machines vary more.
_EQUAL = 0.02


@dataclass(frozen=True, slots=True)
class Waits:
    """Waiting times behind messages of the same key; ``share``: of the messages that waited."""

    share: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, waits_ns: array[int]) -> Waits:
        """Return the statistics of one waiting time per message, in any order."""
        if not waits_ns:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        rising = sorted(waits_ns)
        count = len(rising)
        at = [rising[-(-count * percent // 100) - 1] / _MS for percent in (50, 90, 99, 100)]
        return cls(sum(each > 0 for each in rising) / count, *at)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Result of one candidate.

    ``busy`` handlers on average during the ``seconds`` of the run; ``ceiling`` is the lint's upper
    bound for them, if all messages of a key were in one queue.
    """

    candidate: str
    keeps_order: bool
    seconds: float
    per_s: float
    busy: float
    ceiling: float
    key_wait: Waits
    longest_chain: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """All candidates over the same messages, fastest first. ``work_s``: total handling time;
    ``ideal_s``: duration if no handler is ever idle.
    """

    source: str
    messages: int
    workers: int
    service: str
    round_trip_ms: float
    work_s: float
    ideal_s: float
    candidates: Sequence[Simulated]
    take: str | None
    why: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return asdict(self)


def simulate(
    sample: Sample,
    rules: TopicRules,
    plan: Plan,
    *,
    lint: TuningReport,
    on_run: Callable[[Simulated], None] = lambda _: None,
    each: Each = map,
) -> SimulationReport:
    """Simulate *sample* with each candidate and rank the results.

    Args:
        sample: The messages.
        rules: Settings of the topic apart from the order key.
        plan: The simulated client.
        lint: The lint's report on the same sample.
        on_run: Called after each candidate: a large sample takes seconds.
        each: Like ``map``, applies a function to all candidates, possibly in several processes.
    """
    shared_ns = None
    if not isinstance(plan.service, ObservedTimes):
        shared_ns = service_ns(sample, plan.service, sample.candidates[0])

    def one(candidate: str) -> Simulated:
        return _simulated(play(sample, candidate, rules, plan, lasts_ns=shared_ns), lint)

    runs = []
    for run in each(one, sample.candidates):
        runs.append(run)
        on_run(run)
    work_ns = len(sample) * plan.service.mean_ms * _MS
    if shared_ns is not None:
        work_ns = sum(map(sum, shared_ns))
    return _ranked(runs, lint=lint, plan=plan, work_ns=work_ns)


def _simulated(played: Played, lint: TuningReport) -> Simulated:
    """Return the figures of one run; *lint* is of the same sample."""
    name = played.candidate
    figures = next(each for each in lint.candidates if each.candidate == name)
    judged = next(each for each in lint.advice.judgements if each.candidate == name)
    total_s = played.total_ns / 1e9
    return Simulated(
        candidate=name,
        keeps_order=judged.keeps_order,
        seconds=total_s,
        per_s=played.messages / total_s if total_s else 0.0,
        busy=played.work_ns / played.total_ns if played.total_ns else 0.0,
        ceiling=figures.max_speedup,
        key_wait=Waits.of(played.key_waits_ns),
        longest_chain=played.longest_chain,
        dead_lettered=played.dead_lettered,
    )


def _ranked(
    runs: Sequence[Simulated], *, lint: TuningReport, plan: Plan, work_ns: float
) -> SimulationReport:
    """Rank *runs* and explain the recommendation. Like the lint, it recommends a candidate with
    almost unique keys only if there is no other.
    """
    ranked = sorted(runs, key=lambda each: (each.seconds, each.key_wait.p99_ms))
    fit = [each for each in ranked if each.keeps_order]
    lonely = _lonely(lint)
    best = _best([each for each in fit if each.candidate not in lonely] or fit)
    return SimulationReport(
        source=lint.source,
        messages=lint.messages,
        workers=plan.workers,
        service=str(plan.service),
        round_trip_ms=plan.round_trip_ns / _MS,
        work_s=work_ns / 1e9,
        ideal_s=work_ns / 1e9 / plan.workers,
        candidates=ranked,
        take=None if best is None else best.candidate,
        why=_why(best, ranked, lint, plan, ideal_s=work_ns / 1e9 / plan.workers),
    )


def _lonely(lint: TuningReport) -> frozenset[str]:
    """Return the candidates with almost unique keys."""
    return frozenset(each.candidate for each in lint.candidates if alone(each))


def _best(ranked: Sequence[Simulated]) -> Simulated | None:
    """Return the candidate with the least waiting among those about as fast as the fastest."""
    if not ranked:
        return None
    equal = [each for each in ranked if each.seconds <= ranked[0].seconds * (1 + _EQUAL)]
    return min(equal, key=lambda each: (each.key_wait.p99_ms, each.key_wait.share, each.seconds))


def _why(
    best: Simulated | None,
    ranked: Sequence[Simulated],
    lint: TuningReport,
    plan: Plan,
    *,
    ideal_s: float,
) -> list[str]:
    if best is None:
        return [lint.advice.why]
    said = [
        f"{best.candidate} processes {number(lint.messages, 'message')} in"
        f" {duration(1000 * best.seconds)}, that is"
        f" {best.per_s:,.0f} a second, with {best.busy:.1f} of {plan.workers} handlers busy on"
        f" average; without any order it would take {duration(1000 * ideal_s)}."
    ]
    waits = best.key_wait
    said.append(
        f"{100 * waits.share:.3g} % of its messages wait behind another message of their key,"
        f" {duration(waits.p99_ms)} at p99, and its longest chain has"
        f" {number(best.longest_chain, 'message')}."
        if waits.share
        else "None of its messages waits behind another message of its key."
    )
    said += [
        f"{each.candidate} takes {each.seconds / best.seconds:.1f} times as long: "
        f"{each.busy:.1f} handlers are busy."
        for each in ranked
        if each.keeps_order and each.seconds > best.seconds * (1 + _EQUAL)
    ]
    others = [each for each in ranked if each.keeps_order and each is not best]
    lonely = _lonely(lint)
    if named := [each.candidate for each in others if each.candidate in lonely]:
        said.append(
            f"With {', '.join(named)} almost every message has its own key, so there is no order to"
            " keep, or the sample is too small to tell."
        )
    unfit = [each.candidate for each in ranked if not each.keeps_order]
    if unfit:
        said.append(
            f"Unsuitable for the current messages, whatever their times: {', '.join(unfit)};"
            " orderlane order-key lint shows the reasons."
        )
    said.append(
        f"It is right if handlers need order only among messages with the same {best.candidate}."
    )
    return said
