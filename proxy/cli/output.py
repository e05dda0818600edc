"""What commands print: tables for people, JSON for programs (``-o table|json``)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from proxy.diagnosis.findings import readable

_UNLIMITED = 10_000  # columns
#: Signs that people's terminals may obey; others in a key, a reason or a body are shown instead.
_LAYOUT = "\n\t"


class OutputFormat(StrEnum):
    """How a command prints what it found."""

    TABLE = "table"
    JSON = "json"


#: The option of every command that lists something.
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="For people or for programs.")]


def print_json(value: Any) -> None:
    """One JSON value on one line of stdout, at once."""
    sys.stdout.write(orjson.dumps(value, default=str).decode() + "\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    """Tell a person something on stderr, beside the data."""
    sys.stderr.write(readable(sentence, _LAYOUT) + "\n")
    sys.stderr.flush()


def print_rows(
    rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], output: OutputFormat
) -> None:
    """*rows* as a table of *columns*, or as a JSON list with all their fields."""
    if output is OutputFormat.JSON:
        print_json([dict(row) for row in rows])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    stdout_console().print(table)


def stdout_console() -> Console:
    """A console for stdout that never folds a line: terminals do it better, a pipe must not."""
    return Console(width=_UNLIMITED, highlight=False, markup=False)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else readable(str(value), _LAYOUT)
