"""What simulations of candidates came to, which one is best, and why: plain values. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.advice import alone
from proxy.tuning.report import TuningReport
from proxy.tuning.sample import Sample
from proxy.tuning.simulator import Plan, Played, play, service_ns

#: Applies a function to each of some candidates, in their order.
Each = Callable[[Callable[[str], "Simulated"], Iterable[str]], Iterable["Simulated"]]
_MS = 1e6
#: Times that differ by less are equal: a run on a real machine varies more.
_EQUAL = 0.02


@dataclass(frozen=True, slots=True)
class Waits:
    """How long messages waited behind others of their key; ``share``: of those that did."""

    share: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, waits_ns: array[int]) -> Waits:
        """One of each message, in any order."""
        if not waits_ns:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        rising = sorted(waits_ns)
        count = len(rising)
        at = [rising[-(-count * percent // 100) - 1] / _MS for percent in (50, 90, 99, 100)]
        return cls(sum(each > 0 for each in rising) / count, *at)


@dataclass(frozen=True, slots=True)
class Simulated:
    """One candidate. ``busy`` handlers on average, while the sample was worked off in ``seconds``;
    ``ceiling`` is the lint's: no run keeps more busy, if all of a key stood in one queue.
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
    """All candidates over the same messages, the quickest first. ``work_s``: what handlers do all
    in all; ``ideal_s``: how long that takes them if none ever waits.
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
        """For JSON."""
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
    """Play *sample* with each of its candidates, and judge them; *lint* is of the same sample.
    *on_run* is told of each when it is over: a large sample takes seconds. *each* applies a
    function to all candidates, as ``map`` does, or in several processes at a time.
    """
    lasts_ns = service_ns(sample, plan.service)

    def one(candidate: str) -> Simulated:
        return _simulated(play(sample, candidate, rules, plan, lasts_ns=lasts_ns), lint)

    runs = []
    for run in each(one, sample.candidates):
        runs.append(run)
        on_run(run)
    return _ranked(runs, lint=lint, plan=plan, work_ns=sum(map(sum, lasts_ns)))


def _simulated(played: Played, lint: TuningReport) -> Simulated:
    """The figures of one run; *lint* is of the same sample."""
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
    runs: Sequence[Simulated], *, lint: TuningReport, plan: Plan, work_ns: int
) -> SimulationReport:
    """Rank *runs*, and say in sentences which one to take: as the lint does, one whose messages are
    alone with their keys only if there is no other.
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
    """Candidates whose keys hardly two messages share."""
    return frozenset(each.candidate for each in lint.candidates if alone(each))


def _best(ranked: Sequence[Simulated]) -> Simulated | None:
    """Of those that take about as long as the quickest, the one whose messages wait least."""
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
        f"{best.candidate} works off {lint.messages:,} messages in {_time(best.seconds)}, that is"
        f" {best.per_s:,.0f} a second, with {best.busy:.1f} of {plan.workers} handlers busy on"
        f" average; without any order it would take {_time(ideal_s)}."
    ]
    waits = best.key_wait
    said.append(
        f"{100 * waits.share:.3g} % of its messages wait behind another of their key,"
        f" {waits.p99_ms:,.0f} ms or less at 99 %, and its longest chain is"
        f" {best.longest_chain:,} messages."
        if waits.share
        else "None of its messages waits behind another of its key."
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
            f"Hardly two messages share a key of {', '.join(named)}, which would keep nothing in"
            " order; or the sample is too small to tell."
        )
    unfit = [each.candidate for each in ranked if not each.keeps_order]
    if unfit:
        said.append(
            f"Not to be taken as the messages stand, whatever their times: {', '.join(unfit)};"
            " orderlane order-key lint says why."
        )
    said.append(
        f"It is right if handlers need order only among messages with the same {best.candidate}."
    )
    return said


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:,.0f} ms"
    return f"{seconds:,.1f} s" if seconds < 600 else f"{seconds / 60:,.1f} min"
