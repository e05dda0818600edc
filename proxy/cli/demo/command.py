"""``orderlane demo``: options, progress and the printed result."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from proxy.cli.demo.figures import Figures
from proxy.cli.demo.flights import flight_events
from proxy.cli.demo.run import DemoPlan, run_demo
from proxy.cli.output import print_json

#: Progress and the table go to stderr; stdout has one line of JSON.
_console = Console(stderr=True, width=None if sys.stderr.isatty() else 110)


def demo(
    flights: Annotated[
        str, typer.Option(help="flights to use: january, all, or a number")
    ] = "january",
    json: Annotated[bool, typer.Option("--json", help="print only the line of JSON")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="folder in which to keep data, logs and histories")
    ] = None,
) -> None:
    """Run real flights of 2013 through a gateway, ordered by queue and then by aircraft.

    The last line on stdout is a JSON object. Exit code 1 if order was violated, or an event was
    lost or duplicated.
    """
    plan = DemoPlan(flight_events(flights))
    with tempfile.TemporaryDirectory(prefix="orderlane-demo-") as temporary:
        folder = Path(temporary) if keep is None else keep
        folder.mkdir(parents=True, exist_ok=True)
        by_queue, by_key = _run(plan, folder, quiet=json)
    if not json:
        _print_table([by_queue, by_key])
    summary = _summary(by_queue, by_key)
    print_json(summary)
    if summary["violations"] or summary["duplicates"] or summary["lost"]:
        raise typer.Exit(1)


def _run(plan: DemoPlan, folder: Path, *, quiet: bool) -> list[Figures]:
    with Progress(
        TextColumn("{task.description:>14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=_console,
        disable=quiet,
    ) as bars:
        tasks = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        return asyncio.run(run_demo(plan, folder, progress))


def _print_table(runs: list[Figures]) -> None:
    table = Table(title=f"The same work in two orders ({os.cpu_count()} processors)")
    for name in (
        *("order key", "events", "aircraft", "seconds", "events/s", "in parallel"),
        *("violations", "duplicates", "lost"),
    ):
        table.add_column(name, justify="left" if name == "order key" else "right")
    for run in runs:
        table.add_row(
            run.order_key,
            f"{run.events:,}",
            f"{run.keys:,}",
            f"{run.seconds:.1f}",
            f"{run.events_per_second:,.0f}",
            f"{run.parallelism:.1f}",
            *(str(count) for count in (run.violations, run.duplicates, run.lost)),
        )
    _console.print(table)


def _summary(by_queue: Figures, by_key: Figures) -> dict[str, float]:
    return {
        "events": by_key.events,
        "keys": by_key.keys,
        "violations": by_queue.violations + by_key.violations,
        "duplicates": by_queue.duplicates + by_key.duplicates,
        "lost": by_queue.lost + by_key.lost,
        "queue_order_s": round(by_queue.seconds, 3),
        "key_order_s": round(by_key.seconds, 3),
        "queue_order_parallelism": round(by_queue.parallelism, 2),
        "key_order_parallelism": round(by_key.parallelism, 2),
        "speedup": round(by_queue.seconds / by_key.seconds, 2) if by_key.seconds else 0.0,
    }
