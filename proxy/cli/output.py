"""Output of commands: tables or JSON (``-o table|json``)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from broker_core.printable import printable, printable_json

_UNLIMITED = 10_000  # columns
#: Control characters passed to the terminal; all others are escaped.
_LAYOUT = "\n\t"


class OutputFormat(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"


#: The option of every command that prints rows.
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="output format")]


def print_json(value: Any) -> None:
    """Print one JSON value as a line on stdout, and flush."""
    print_json_line(orjson.dumps(value, default=str))


def print_json_line(document: bytes) -> None:
    """Print an encoded JSON *document* as a line on stdout, and flush."""
    sys.stdout.write(printable_json(document.decode()) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print lines of text on stdout."""
    typer.echo(printable(text, _LAYOUT))


def say(sentence: str) -> None:
    """Print a sentence on stderr, separate from the data on stdout."""
    sys.stderr.write(printable(sentence, _LAYOUT) + "\n")
    sys.stderr.flush()


def print_rows(
    rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], output: OutputFormat
) -> None:
    """Print *rows* as a table of *columns*, or as a JSON list with all fields."""
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
    """Return a console for stdout that never wraps lines: terminals do, and pipes must not."""
    return Console(width=_UNLIMITED, highlight=False, markup=False)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else printable(str(value), _LAYOUT)
