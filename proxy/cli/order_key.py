"""``orderlane order-key``: show, compare, simulate and change the order key of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

import typer

from proxy.cli import order_key_rollout
from proxy.cli.garbage import look_at_young_objects_only
from proxy.cli.options import (
    DEFAULT_HTTP,
    DEFAULT_NAMESERVER,
    GroupArgument,
    HttpOption,
    NameserverOption,
    finite,
)
from proxy.cli.order_key_handling import handling_of, measured_round_trip_ns
from proxy.cli.order_key_sample import Known, known, take_sample
from proxy.cli.output import Output, OutputFormat, print_json, print_rows, say
from proxy.cli.side_by_side import side_by_side
from proxy.core.keys.kinds.registry import one_of
from proxy.core.keys.order_key import MissingKey
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from proxy.lane.topic_rules import rules_of
from proxy.tuning import simulation
from proxy.tuning.figures import Figures
from proxy.tuning.report import TuningReport
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulation import Simulated, SimulationReport
from proxy.tuning.simulator import Plan
from proxy.tuning.words import duration

app = typer.Typer(
    no_args_is_help=True,
    help="Show, compare, simulate and change the order key of a group.",
)

LINT_COLUMNS = (
    *("candidate", "present", "types", "keys", "top 1", "top 10", "top 100", "in several queues"),
    *("chains", "longest chain", "ceiling"),
)
SIMULATION_COLUMNS = (
    *("candidate", "order", "time", "messages/s", "busy", "waiting", "p50", "p90", "p99", "max"),
    "longest chain",
)

TopicOption = Annotated[
    str | None, typer.Option("--topic", help="topic, required if the group has several")
]
CandidateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--candidate",
        help=f"candidate order key: {one_of()}; repeatable (default: all that are found)",
    ),
]
SampleOption = Annotated[
    int, typer.Option("--sample", min=1, help="sample size: the newest N messages")
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=1, help="number of concurrent handlers")
]

#: Value of --service-ms for the times that clients measured, and handlers of a group without any.
OBSERVED, _WORKERS = "observed", 64

app.command("rollout")(order_key_rollout.rollout)
app.command("get")(order_key_rollout.get)


@app.command("lint")
def lint(
    group: GroupArgument,
    sample: SampleOption = 100_000,
    candidate: CandidateOption = None,
    topic: TopicOption = None,
    workers: WorkersOption = 64,
    http: HttpOption = DEFAULT_HTTP,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Compare candidate order keys by a sample of the group's messages.

    Reads from the brokers without locks, and changes no offsets. "ceiling" is the maximum number
    of busy handlers: the messages of a key are handled one at a time.
    """
    of = known(http, group, topic)
    taken = asyncio.run(take_sample(of, nameserver, most=sample, candidates=_given(candidate)))
    report = _report(taken, of.topic.name, workers, MissingKey(of.topic.missing_key))
    if output is OutputFormat.JSON:
        print_json(report.as_dict())
        return
    print_rows([lint_row(each) for each in report.candidates], columns=LINT_COLUMNS, output=output)
    for sentence in lint_sentences(report):
        say(sentence)


@app.command("simulate")
def simulate(
    group: GroupArgument,
    service_ms: Annotated[
        str,
        typer.Option(
            "--service-ms",
            help="handling time per message, ms: 5, or p50=3,p99=80 (lognormal), or observed: as"
            " measured by the group's clients",
        ),
    ],
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="number of concurrent handlers (default: those of the group's clients, or 64)",
        ),
    ] = None,
    sample: SampleOption = 100_000,
    candidate: CandidateOption = None,
    topic: TopicOption = None,
    round_trip_ms: Annotated[
        float | None,
        typer.Option(
            "--round-trip-ms",
            min=0.0,
            max=60_000.0,
            callback=finite,
            help="time from a client's request to the answer, ms (default: as measured by the"
            " group's clients, or from here)",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="random seed of the handling times")
    ] = 1,
    http: HttpOption = DEFAULT_HTTP,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Simulate candidate order keys over a sample of messages, and recommend one.

    Runs the proxy's ordering core in virtual time, with the whole sample available from the start,
    under the group's hand_out policy.
    "waiting" and its percentiles are the wait behind other messages of the same key.
    """
    service = None if service_ms == OBSERVED else _service(service_ms, seed)
    of = known(http, group, topic)
    plan = _plan(http, of, service, workers=workers, round_trip_ms=round_trip_ms, seed=seed)
    taken = asyncio.run(take_sample(of, nameserver, most=sample, candidates=_given(candidate)))
    linted = _report(taken, of.topic.name, plan.workers, MissingKey(of.topic.missing_key))
    look_at_young_objects_only()  # there are millions of objects, and hardly any garbage
    on_run = _quiet if output is OutputFormat.JSON else _say_time
    report = simulation.simulate(
        taken, rules_of(of.topic), plan, lint=linted, on_run=on_run, each=side_by_side
    )
    if output is OutputFormat.JSON:
        print_json(report.as_dict())
        return
    print_rows(simulated_rows(report), columns=SIMULATION_COLUMNS, output=output)
    for sentence in simulation_sentences(report):
        say(sentence)


def _service(text: str, seed: int) -> ServiceTimes:
    try:
        return ServiceTimes.parse(text, seed=seed)
    except ValueError as error:
        raise OrderlaneError(f"--service-ms: {error}, nor {OBSERVED!r}") from None


def _plan(
    http: str,
    of: Known,
    service: ServiceTimes | None,
    *,
    workers: int | None,
    round_trip_ms: float | None,
    seed: int,
) -> Plan:
    """Return the plan with the given values; None: as the group's clients measured."""
    handling = handling_of(http, of)
    if workers is None and not handling.handlers:
        workers = _WORKERS
    given_ns = 0 if round_trip_ms is None else round(round_trip_ms * 1e6)
    reported = round_trip_ms is None and handling.knows_round_trip
    try:
        plan = handling.plan(
            workers,
            service,
            round_trip_ns=None if reported else given_ns,
            seed=seed,
            hand_out=of.hand_out,
            max_leased=of.max_leased,
        )
    except ValueError as error:
        raise OrderlaneError(f"group {of.group}: {error}") from None
    if round_trip_ms is None and not reported:
        plan = replace(plan, round_trip_ns=measured_round_trip_ns(http))
        measured_ms = plan.round_trip_ns / 1e6
        say(f"round trip measured from here: {measured_ms:.2g} ms; --round-trip-ms sets it")
    return plan


def _given(candidates: list[str] | None) -> list[str]:
    return candidates or []


def _report(sample: Sample, topic: str, workers: int, missing: MissingKey) -> TuningReport:
    source = f"{topic}, its newest {number(len(sample), 'message')}"
    return sample.report(source=source, workers=workers, missing=missing)


def lint_row(figures: Figures) -> dict[str, Any]:
    """A candidate as a row of ``LINT_COLUMNS``."""
    return {
        "candidate": figures.candidate,
        "present": _percent(1 - figures.missing_share),
        "types": ", ".join(f"{kind} {count:,}" for kind, count in figures.kinds.items()),
        "keys": f"{figures.keys:,}",
        "top 1": _percent(figures.top1_share),
        "top 10": _percent(figures.top10_share),
        "top 100": _percent(figures.top100_share),
        "in several queues": f"{figures.scattered_keys:,}",
        "chains": f"{figures.chains:,}",
        "longest chain": f"{figures.busiest_chain:,}",
        "ceiling": f"{figures.max_speedup:.1f}x",
    }


def lint_sentences(report: TuningReport) -> Iterable[str]:
    """The lines below the table of ``order-key lint``."""
    yield f"{number(report.messages, 'message')}: {report.source}"
    for judged in report.advice.judgements:
        verdict = "" if judged.keeps_order else " keeps no order here;"
        if judged.cautions or verdict:
            yield f"{judged.candidate}:{verdict} {'; '.join(judged.cautions)}"
    if report.advice.take is None:
        yield f"no candidate is recommended: {report.advice.why}"
    else:
        yield f"recommended: {report.advice.take}. {report.advice.why}"


def _say_time(run: Simulated) -> None:
    say(f"{run.candidate}: {duration(1000 * run.seconds)}")


def _quiet(_run: Simulated) -> None:
    return


def simulated_rows(report: SimulationReport) -> list[dict[str, Any]]:
    """The candidates of a simulation as rows of ``SIMULATION_COLUMNS``."""
    return [
        {
            "candidate": each.candidate,
            "order": "kept" if each.keeps_order else "not kept",
            "time": duration(1000 * each.seconds),
            "messages/s": round(each.per_s),
            "busy": each.busy,
            "waiting": _percent(each.key_wait.share),
            "p50": duration(each.key_wait.p50_ms),
            "p90": duration(each.key_wait.p90_ms),
            "p99": duration(each.key_wait.p99_ms),
            "max": duration(each.key_wait.max_ms),
            "longest chain": each.longest_chain,
        }
        for each in report.candidates
    ]


def simulation_sentences(report: SimulationReport) -> Iterable[str]:
    """The lines below the table of ``order-key simulate``."""
    yield (
        f"{number(report.messages, 'message')}, {number(report.workers, 'handler')},"
        f" {report.service} per message, {report.round_trip_ms:.3g} ms per request"
    )
    yield from report.why
    yield f"recommended: {report.take or 'none of these'}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
