"""Output of commands: tables or JSON (``-o table|wide|json``)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from broker_core.printable import printable, printable_json

_UNLIMITED = 1 << 30  # columns; longer lines would be folded
#: Columns between two columns of a table, and of the shortest text.
_BETWEEN, _SHORTEST = 2, 4
#: Control characters passed to the terminal; all others are escaped.
_LAYOUT = "\n\t"


class OutputFormat(StrEnum):
    """Output formats. ``TABLE`` fits a terminal, ``WIDE`` shows everything."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


#: The option of every command that prints rows.
Output = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", help="output format; --wide: a table with everything"),
]


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
    rows: Sequence[Mapping[str, Any]],
    *,
    columns: Sequence[str],
    output: OutputFormat,
    unknown: Collection[str] = (),
) -> None:
    """Print *rows* as a table of *columns*, or as a JSON list with all fields. A null in the
    columns *unknown* is shown as that word, in others as "-".

    On a terminal a TABLE has its width: long texts end with "…". Elsewhere it is never shortened.
    """
    if output is OutputFormat.JSON:
        print_json([dict(row) for row in rows])
        return
    fits = output is OutputFormat.TABLE and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if fits else _UNLIMITED
    words = dict.fromkeys(unknown, "unknown")
    shown = [
        {**row, **{name: word for name, word in words.items() if row.get(name) is None}}
        for row in rows
    ]
    numbers = _numbers(rows, columns)
    stdout_console(width).print(_table(shown, columns, numbers, width=width))


def print_preview(rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str]) -> None:
    """Print *rows* as a table on stderr, before a question."""
    console = Console(width=_UNLIMITED, highlight=False, markup=False, stderr=True)
    console.print(_table(rows, columns, _numbers(rows, columns), width=_UNLIMITED))


def _numbers(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> set[str]:
    """Return the columns without texts."""
    return {
        name
        for name in columns
        if all(isinstance(row.get(name), int | float | None) for row in rows)
    }


def _table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    numbers: Collection[str],
    *,
    width: int,
) -> Table:
    """Return the table of *rows*, at most *width* columns wide unless *numbers* need more."""
    natural = {
        name: max(cell_len(name), *(cell_len(_cell(row.get(name))) for row in rows), 0)
        for name in columns
    }
    longest = _longest_text(natural, numbers, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        fits = natural[name] <= longest or name in numbers
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            overflow="fold" if fits else "ellipsis",
            no_wrap=not fits,
            width=None if width == _UNLIMITED else natural[name] if fits else longest,
        )
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    return table


def _longest_text(natural: Mapping[str, int], numbers: Collection[str], width: int) -> int:
    """Return the width to which columns of text are shortened so that all columns fit."""
    rest = width - _BETWEEN * (len(natural) - 1) - sum(natural[name] for name in numbers)
    texts = [length for name, length in natural.items() if name not in numbers]
    for longest in range(max(texts, default=0), _SHORTEST, -1):
        if sum(min(each, longest) for each in texts) <= rest:
            return longest
    return _SHORTEST


def stdout_console(width: int = _UNLIMITED) -> Console:
    """Return a console for stdout that wraps no lines of up to *width* columns: terminals do, and
    pipes must not.
    """
    return Console(width=width, highlight=False, markup=False)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else printable(str(value), _LAYOUT)
