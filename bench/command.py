"""The command ``orderlane bench``, also ``python -m bench`` in a source tree: benchmarks of whole
installations.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from bench.case_commands import (
    CaseGroup,
    check_broker,
    failing_in_words,
    measure_all,
    result_file,
    result_folder,
)
from bench.case_commands import command as _command
from bench.report import ROOT
from proxy.cli.output import OutputFormat, print_rows, say
from proxy.errors import OrderlaneError

RESULTS = ROOT / "bench" / "results"

app = typer.Typer(
    cls=CaseGroup,
    no_args_is_help=True,
    help="Run benchmarks of whole installations in separate processes (needs a source tree).",
)

Out = Annotated[
    Path | None,
    typer.Option("--out", callback=result_file, help="result file (default: in bench/results)"),
]
Rounds = Annotated[int, typer.Option(min=1, help="runs of each arm, interleaved")]
Seed = Annotated[int, typer.Option(help="seed of the order of arms, and of keys")]
Broker = Annotated[
    str, typer.Option(help="embedded, or a version of Apache RocketMQ: 5.3.3 or 4.9.7")
]


@app.command("all")
def run_all(
    full: Annotated[
        bool,
        typer.Option("--full", help="run the full shapes, and the cases with options of their own"),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="keep finished runs of an earlier call with this code")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="runs of each arm (default: given by the shape)")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=result_folder,
            help="result folder (default: build/bench; bench/results with --full)",
        ),
    ] = None,
) -> None:
    """Run all cases with their peers, one after the other; list failures at the end."""
    folder = out or (RESULTS if full else ROOT / "build" / "bench")
    measure_all(folder, full=full, resume=resume, rounds=rounds)


@app.command()
def takeover(
    broker: Broker = "embedded",
    end: Annotated[
        list[str] | None, typer.Option(help="end by SIGTERM, SIGKILL or SIGSTOP (default: all)")
    ] = None,
    rounds: Rounds = 3,
    queues: Annotated[int, typer.Option(min=2)] = 8,
    rate: Annotated[float, typer.Option(min=1, help="messages per second")] = 400.0,
    stop_s: Annotated[float, typer.Option(min=1, help="duration of SIGSTOP in seconds")] = 20.0,
    spilled: Annotated[
        int, typer.Option(min=0, help="messages behind one stuck key per queue")
    ] = 0,
    vs: Annotated[
        list[str] | None, typer.Option(help="also measure this peer, such as rocketmq-orderly")
    ] = None,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """Measure the pause of queues whose proxy ends, and repeated messages."""
    check_broker(broker)
    from bench import peer_takeover
    from bench import takeover as case

    ends = tuple(end or case.ENDS)
    if unknown := [each for each in ends if each not in case.ENDS]:
        raise OrderlaneError(f"--end {unknown[0]!r}: expected one of {', '.join(case.ENDS)}")
    peers = tuple(vs or ())
    peer_takeover.check(peers)
    plan = case.Plan(
        broker,
        ends,
        rounds,
        queues=queues,
        rate=rate,
        stop_s=stop_s,
        spilled=spilled,
        seed=seed,
        vs=peers,
    )
    name = f"takeover-{broker}{f'-spilled-{spilled}' if spilled else ''}.json"
    with failing_in_words("takeover"):
        rows = case.measure(plan, out or RESULTS / name, command=_command(), say=say)
    print_rows(rows, columns=case.COLUMNS, output=OutputFormat.TABLE)


@app.command()
def blackout(
    broker: Broker = "embedded",
    stuck_messages: Annotated[
        int, typer.Option(min=0, help="messages of stuck keys before the traffic; 1000000 in full")
    ] = 100_000,
    traffic: Annotated[
        int, typer.Option(min=100, help="messages, of which 10 % have stuck keys")
    ] = 100_000,
    rounds: Rounds = 3,
    queues: Annotated[int, typer.Option(min=1)] = 4,
    release_s: Annotated[
        float, typer.Option(min=0, help="seconds to follow the keys after their release")
    ] = 20.0,
    history: Annotated[
        bool, typer.Option("--history", help="also judge histories; slower")
    ] = False,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """Measure the cost of one stuck key per queue for other keys: throughput and memory."""
    check_broker(broker)
    from bench import blackout as case

    plan = case.Plan(
        broker,
        stuck=stuck_messages,
        traffic=traffic,
        rounds=rounds,
        queues=queues,
        release_s=release_s,
        histories=history,
        seed=seed,
    )
    path = out or RESULTS / f"blackout-{broker}-{stuck_messages}.json"
    with failing_in_words("blackout"):
        rows = case.measure(plan, path, command=_command(), say=say)
    print_rows(rows, columns=case.COLUMNS, output=OutputFormat.TABLE)


@app.command()
def bulk(
    broker: Broker = "embedded",
    load: Annotated[
        list[str] | None, typer.Option(help="full, paced or sparse (default: all in turn)")
    ] = None,
    rounds: Rounds = 5,
    messages: Annotated[int, typer.Option(min=1000, help="backlog; 1000000 in full")] = 300_000,
    rate: Annotated[float, typer.Option(min=1, help="messages per second of the paced load")] = 1e3,
    stretch_s: Annotated[float, typer.Option(min=0.4, help="seconds per arm and round")] = 2.0,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="bytes per second of bulk readers beside clients, 0: none (default: the proxy's)",
        ),
    ] = None,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """Measure the cost of a bulk backfill for another group's clients: throughput and delay."""
    check_broker(broker)
    from bench import bulk as case

    loads = tuple(load or case.LOADS)
    if unknown := [each for each in loads if each not in case.LOADS]:
        raise OrderlaneError(f"--load {unknown[0]!r}: expected one of {', '.join(case.LOADS)}")
    plan = case.Plan(
        broker,
        loads,
        rounds,
        messages=messages,
        rate=rate,
        stretch_s=stretch_s,
        limit=limit,
        seed=seed,
    )
    name = f"bulk-{broker}{'' if limit is None else f'-limit-{limit}'}.json"
    with failing_in_words("bulk"):
        rows = case.measure(plan, out or RESULTS / name, command=_command(), say=say)
    print_rows(rows, columns=case.COLUMNS, output=OutputFormat.TABLE)


@app.command()
def spark(
    broker: Broker = "embedded",
    rows: Annotated[int, typer.Option(min=1, help="messages in the topic")] = 1_000_000,
    body_bytes: Annotated[int, typer.Option(min=64, help="bytes of each body")] = 256,
    queues: Annotated[int, typer.Option(min=1, help="queues of the topic; each is a task")] = 2,
    rounds: Rounds = 5,
    vs: Annotated[
        list[str] | None,
        typer.Option(help="kafka: also measure Spark's own source and sink for Apache Kafka"),
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option(
            help="with --vs: read, stream, filtered, write or archive (default: all in turn)"
        ),
    ] = None,
    source_version: Annotated[
        str | None,
        typer.Option(help="with --vs: version of Spark's module for Kafka (default: 4.2.0)"),
    ] = None,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """Measure how fast Spark reads a topic, compared with the same rows in memory; with --vs also
    streams, filtered reads, writes and archives, compared with Apache Kafka.
    """
    check_broker(broker)
    if vs and (unknown := [name for name in vs if name != "kafka"]):
        raise OrderlaneError(f"--vs {unknown[0]!r}: expected kafka")
    if not vs and (operation or source_version):
        raise OrderlaneError("--operation and --source-version belong to --vs kafka: set it too")
    _check_spark("spark")
    size = {"rows": rows, "body_bytes": body_bytes, "queues": queues, "rounds": rounds}
    with failing_in_words("spark"):
        if vs:
            _spark_with_kafka(
                out or RESULTS / f"kafka-spark-{broker}.json",
                *(broker, size, seed),
                operations=operation,
                source_version=source_version,
            )
            return
        from bench import spark as case

        table = case.measure(
            case.Plan(broker, **size, seed=seed),
            out or RESULTS / f"spark-{broker}.json",
            command=_command(),
            say=say,
        )
    print_rows(table, columns=case.COLUMNS, output=OutputFormat.TABLE)


def _spark_with_kafka(
    out: Path,
    broker: str,
    size: dict[str, int],
    seed: int,
    *,
    operations: list[str] | None,
    source_version: str | None,
) -> None:
    from bench import spark_kafka as case
    from bench.spark_comparison import OPERATIONS, SOURCE_VERSION, Plan

    chosen = tuple(operations or OPERATIONS)
    if unknown := [name for name in chosen if name not in OPERATIONS]:
        raise OrderlaneError(f"--operation {unknown[0]!r}: expected one of {', '.join(OPERATIONS)}")
    plan = Plan(
        broker,
        **size,
        written=max(1, size["rows"] // 2),
        operations=chosen,
        source_version=source_version or SOURCE_VERSION,
        seed=seed,
    )
    table = case.measure(plan, out, command=_command(), say=say)
    print_rows(table, columns=case.COLUMNS, output=OutputFormat.TABLE)


@app.command("spark-planning")
def spark_planning(
    broker: Broker = "embedded",
    queues: Annotated[int, typer.Option(min=1, help="queues of the topic")] = 10_000,
    rounds: Rounds = 5,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """Measure how long a Spark driver plans for many queues (without Spark itself)."""
    check_broker(broker)
    _check_spark("spark-planning")
    from bench import spark_planning as case

    plan = case.Plan(broker, queues=queues, rounds=rounds, seed=seed)
    with failing_in_words("spark-planning"):
        table = case.measure(
            plan, out or RESULTS / f"planning-{broker}.json", command=_command(), say=say
        )
    print_rows(table, columns=case.COLUMNS, output=OutputFormat.TABLE)


def _check_spark(case: str) -> None:
    """Raise OrderlaneError unless the packages of the extra ``spark`` are installed."""
    if missing := [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]:
        raise OrderlaneError(
            f"orderlane bench {case} needs {' and '.join(missing)}: install the extra spark with"
            " .venv/bin/pip install --require-hashes -r requirements/spark.txt"
        )
