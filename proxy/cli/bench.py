"""``orderlane bench``: measures whole installations. The cases stand in the source tree."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from proxy.cli.output import OutputFormat, print_rows, say
from proxy.errors import OrderlaneError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"

app = typer.Typer(
    no_args_is_help=True,
    help="Benchmarks of whole installations, with processes of their own (source tree needed).",
)

Out = Annotated[
    Path | None, typer.Option("--out", help="file of the result (default: in bench/results)")
]
Rounds = Annotated[int, typer.Option(min=1, help="runs of each arm, interleaved")]
Seed = Annotated[int, typer.Option(help="of the order of arms, and of keys")]
Broker = Annotated[
    str, typer.Option(help="embedded, or a version of Apache RocketMQ: 5.3.3 or 4.9.7")
]


@app.command()
def takeover(
    broker: Broker = "embedded",
    end: Annotated[
        list[str] | None, typer.Option(help="SIGTERM, SIGKILL or SIGSTOP (default: all)")
    ] = None,
    rounds: Rounds = 3,
    queues: Annotated[int, typer.Option(min=2)] = 8,
    rate: Annotated[float, typer.Option(min=1, help="messages a second")] = 400.0,
    stop_s: Annotated[float, typer.Option(min=1, help="how long SIGSTOP lasts")] = 20.0,
    spilled: Annotated[
        int, typer.Option(min=0, help="messages that wait behind one stuck key a queue")
    ] = 0,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """How long queues stand still when the proxy that owns them ends, and what comes twice."""
    _find_cases(broker)
    from bench import takeover as case

    ends = tuple(end or case.ENDS)
    if unknown := [each for each in ends if each not in case.ENDS]:
        raise OrderlaneError(f"--end {unknown[0]!r} is none of {', '.join(case.ENDS)}")
    plan = case.Plan(
        broker, ends, rounds, queues=queues, rate=rate, stop_s=stop_s, spilled=spilled, seed=seed
    )
    name = f"takeover-{broker}{f'-spilled-{spilled}' if spilled else ''}.json"
    with _failing_in_words("takeover"):
        rows = case.measure(plan, out or RESULTS / name, command=_command(), say=say)
    print_rows(rows, columns=case.COLUMNS, output=OutputFormat.TABLE)


@app.command()
def blackout(
    broker: Broker = "embedded",
    stuck_messages: Annotated[
        int, typer.Option(min=0, help="messages of stuck keys before the traffic; 1000000 in full")
    ] = 100_000,
    traffic: Annotated[int, typer.Option(min=100, help="messages, 10 % of stuck keys")] = 100_000,
    rounds: Rounds = 3,
    queues: Annotated[int, typer.Option(min=1)] = 4,
    release_s: Annotated[
        float, typer.Option(min=0, help="how long to follow the keys once they are released")
    ] = 20.0,
    history: Annotated[
        bool, typer.Option("--history", help="judge histories as well: slower")
    ] = False,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """What keys that are stuck, one in each queue, cost the other keys: throughput and memory."""
    _find_cases(broker)
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
    with _failing_in_words("blackout"):
        rows = case.measure(plan, path, command=_command(), say=say)
    print_rows(rows, columns=case.COLUMNS, output=OutputFormat.TABLE)


@app.command()
def bulk(
    broker: Broker = "embedded",
    load: Annotated[
        list[str] | None, typer.Option(help="full or paced (default: both, one after the other)")
    ] = None,
    rounds: Rounds = 5,
    messages: Annotated[int, typer.Option(min=1000, help="backlog; 1000000 in full")] = 300_000,
    rate: Annotated[float, typer.Option(min=1, help="messages a second of the paced load")] = 1e3,
    stretch_s: Annotated[float, typer.Option(min=0.4, help="seconds of an arm in a round")] = 2.0,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="bytes a second of bulk readers beside clients, 0: none (default: the proxy's)",
        ),
    ] = None,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """What a bulk backfill costs the thin clients of another group: throughput and delay."""
    _find_cases(broker)
    from bench import bulk as case

    loads = tuple(load or case.LOADS)
    if unknown := [each for each in loads if each not in case.LOADS]:
        raise OrderlaneError(f"--load {unknown[0]!r} is none of {', '.join(case.LOADS)}")
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
    with _failing_in_words("bulk"):
        rows = case.measure(plan, out or RESULTS / name, command=_command(), say=say)
    print_rows(rows, columns=case.COLUMNS, output=OutputFormat.TABLE)


@app.command()
def spark(
    broker: Broker = "embedded",
    rows: Annotated[int, typer.Option(min=1, help="messages in the topic")] = 1_000_000,
    body_bytes: Annotated[int, typer.Option(min=64, help="of each message")] = 256,
    queues: Annotated[int, typer.Option(min=1, help="of the topic; each is a task")] = 2,
    rounds: Rounds = 5,
    seed: Seed = 7,
    out: Out = None,
) -> None:
    """How fast Spark reads a topic, beside plain sources with the same rows in memory."""
    _find_cases(broker)
    if missing := [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]:
        raise OrderlaneError(
            f"orderlane bench spark needs {' and '.join(missing)}: install the extra spark with"
            " .venv/bin/pip install --editable '.[spark]'"
        )
    from bench import spark as case

    plan = case.Plan(
        broker, rows=rows, body_bytes=body_bytes, queues=queues, rounds=rounds, seed=seed
    )
    with _failing_in_words("spark"):
        table = case.measure(
            plan, out or RESULTS / f"spark-{broker}.json", command=_command(), say=say
        )
    print_rows(table, columns=case.COLUMNS, output=OutputFormat.TABLE)


@contextmanager
def _failing_in_words(case: str) -> Iterator[None]:
    """What did not come true in time is one sentence."""
    try:
        yield
    except AssertionError as error:
        # What processes logged may follow: its end says most.
        lines = str(error).splitlines() or ["something did not come true"]
        said = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
        raise OrderlaneError(f"bench {case}: {said}") from None


def _find_cases(broker: str) -> None:
    """Make the package ``bench`` importable, and check that it knows *broker*.

    Raises OrderlaneError outside a source tree, and for another broker.
    """
    if not (ROOT / "bench" / "site.py").exists():
        raise OrderlaneError(
            "orderlane bench needs the source tree, whose folder bench/ is not installed: clone"
            " the repository, run make setup there, and use its .venv/bin/orderlane"
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from bench.site import KINDS

    if broker not in KINDS:
        raise OrderlaneError(f"--broker {broker!r} is none of {', '.join(KINDS)}")


def _command() -> str:
    """What was called, to be called again: without the place for the result."""
    words = sys.argv[1:]
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    return shlex.join(["orderlane", *words])
