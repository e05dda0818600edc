"""``orderlane keys``: list keys of a group: busiest, hot, blocked, paused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from proxy.cli.key import UNKNOWN, Topic, look_at_keys
from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows

app = typer.Typer(no_args_is_help=True, help="Inspect keys: busiest, hot, blocked, paused.")

_COLUMNS = (
    *("key", "queue", "state", "backlog", "offset", "age_ms", "attempts", "holder", "retry_ms"),
    "last_error",
)

#: Keys of one answer of a proxy.
_MOST = 1_000
Limit = Annotated[int, typer.Option(help="maximum number of keys", min=1, max=_MOST)]


@dataclass(frozen=True, slots=True)
class _List:
    """A list of keys, sorted by ``by``; ``more`` are additional columns."""

    name: str
    help: str
    by: Callable[[dict[str, Any]], Any]
    more: tuple[str, ...] = ()


_LISTS = (
    _List("top", "List the keys with the most unfinished messages.", lambda row: -row["backlog"]),
    _List(
        "hot",
        "List the keys with the largest shares of deliveries in the last one to two minutes.",
        lambda row: -row["share"],
        ("share",),
    ),
    _List(
        "blocked",
        "List keys blocked by a message that failed or is leased for too long, oldest first.",
        lambda row: -(row["age_ms"] or 0),
    ),
    _List(
        "paused",
        "List paused keys, with operator and reason.",
        lambda row: (row["key"], row["queue"]),
        ("by", "reason", "note"),
    ),
)


def _add(listed: _List) -> None:
    def show(
        group: GroupArgument,
        topic: Topic = None,
        limit: Limit = 20,
        http: HttpOption = DEFAULT_HTTP,
        output: Output = OutputFormat.TABLE,
    ) -> None:
        seen = look_at_keys(http, group, topic, listed.name, limit=limit)
        rows = sorted(seen.rows, key=listed.by)[:limit]
        print_rows(rows, columns=(*_COLUMNS, *listed.more), output=output, unknown=UNKNOWN)
        seen.report_cut(len(rows), "key", ": raise --limit" if limit < _MOST else "")
        seen.report_missing()

    app.command(listed.name, help=listed.help)(show)


for _each in _LISTS:
    _add(_each)
