"""``orderlane verify-history``: check a recorded run against the promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from broker_core.printable import printable
from proxy.cli.output import Output, OutputFormat, print_json, print_rows, stdout_console
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from proxy.history.check import verify
from proxy.history.findings import Report

Files = Annotated[
    list[Path], typer.Argument(help="history files, or folders of them", metavar="FILE...")
]


def verify_history(files: Files, output: Output = OutputFormat.TABLE) -> None:
    """Check recorded histories for order, loss and safe commits.

    Exit code 0: clean; 1: violations; 2: unreadable, or without a send or a delivery.
    """
    report = verify(_expand(files))
    if output is OutputFormat.JSON:
        print_json(report.as_dict())
    else:
        print_report(report)
    if not report.clean:
        raise typer.Exit(1)


def _expand(files: list[Path]) -> Iterator[Path]:
    for path in files:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.glob("*.jsonl"))
        if not inside:
            raise OrderlaneError(f"{path}: holds no history (no *.jsonl file)")
        yield from inside


def print_report(report: Report) -> None:
    """Print the result as tables, with examples of each violation."""
    counts = report.as_dict()
    names = [name for name in counts if name not in ("violations", "by_id")]
    rows = [{"what": name, "count": counts[name]} for name in [*names, "violations"]]
    print_rows(rows, columns=["what", "count"], output=OutputFormat.TABLE)
    console = stdout_console()
    for name, violation in sorted(report.violations.items()):
        console.print(f"\n{name}: {number(violation.count, 'violation')}")
        for example in violation.examples:
            console.print(f"  {printable(example)}")
        if violation.count > len(violation.examples):
            console.print(f"  … and {violation.count - len(violation.examples)} more")
