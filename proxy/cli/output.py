"""Tables for people, JSON for machines: what ``-o`` chooses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table


class Format(Enum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Format, typer.Option("-o", "--output", help="table for people, json for machines")
]


def print_rows(rows: Sequence[dict[str, Any]], *, columns: Sequence[str], form: Format) -> None:
    """Print *rows*: *columns* as a table, or all fields as one JSON array."""
    if form is Format.JSON:
        print_json(rows)
        return
    table = Table(*(column.replace("_", " ") for column in columns), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    Console(soft_wrap=True).print(table)


def print_json(value: Any) -> None:
    """Print one line of JSON, at once."""
    sys.stdout.buffer.write(orjson.dumps(value, default=str) + b"\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    """Tell a person, beside the data."""
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


def _text(value: Any) -> str:
    return "-" if value is None else str(value)
