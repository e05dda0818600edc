"""``orderlane keys``: which keys of a group are large, hot, stuck or paused, in all its queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from proxy.cli.key import Topic, look_at_keys
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows

app = typer.Typer(no_args_is_help=True, help="Keys of a group, by what matters of them.")

_COLUMNS = (
    *("key", "queue", "state", "backlog", "offset", "age_ms", "attempts", "holder", "retry_ms"),
    "last_error",
)

Limit = Annotated[int, typer.Option(help="how many", min=1, max=1000)]


@dataclass(frozen=True, slots=True)
class _List:
    """Keys in the order of ``by``; ``more`` are further columns."""

    name: str
    help: str
    by: Callable[[dict[str, Any]], Any]
    more: tuple[str, ...] = ()


_LISTS = (
    _List("top", "Keys with most unfinished messages.", lambda row: -row["backlog"]),
    _List(
        "hot",
        "Keys with the largest shares of what was handed out in the last minute or two.",
        lambda row: -row["share"],
        ("share",),
    ),
    _List(
        "blocked",
        "Keys whose first message failed or is out for long, the oldest first.",
        lambda row: -(row["age_ms"] or 0),
    ),
    _List(
        "paused",
        "Paused keys, by whom and why.",
        lambda row: (row["key"], row["queue"]),
        ("by", "reason", "note"),
    ),
)


def _add(listed: _List) -> None:
    def show(
        group: str,
        topic: Topic = None,
        limit: Limit = 20,
        http: HttpOption = DEFAULT_HTTP,
        output: Output = OutputFormat.TABLE,
    ) -> None:
        seen = look_at_keys(http, group, topic, listed.name, limit=limit)
        rows = sorted(seen.rows, key=listed.by)[:limit]
        print_rows(rows, columns=(*_COLUMNS, *listed.more), output=output)
        seen.tell()

    app.command(listed.name, help=listed.help)(show)


for _each in _LISTS:
    _add(_each)
