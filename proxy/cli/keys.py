"""``orderlane keys``: which keys of a group are large, hot, stuck or paused."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import orjson
import typer

from proxy.cli.connect import ask_proxy
from proxy.cli.key import Topic, place_of
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows

app = typer.Typer(no_args_is_help=True, help="Keys of a group, by what matters of them.")

_COLUMNS = (
    *("key", "queue", "state", "backlog", "offset", "age_ms", "attempts", "holder", "retry_ms"),
    "last_error",
)
_TIMEOUT_S = 30.0

Limit = Annotated[int, typer.Option(help="how many", min=1, max=1000)]


def _list(
    name: str, group: str, topic: str | None, limit: int, http: str, output: OutputFormat
) -> None:
    asked = f"{place_of(http, group, topic)}/{name}?{urlencode({'limit': limit})}"
    rows = orjson.loads(ask_proxy(http, asked, timeout_s=_TIMEOUT_S))
    columns = {"hot": (*_COLUMNS, "share"), "paused": (*_COLUMNS, "by", "reason")}
    print_rows(rows, columns=columns.get(name, _COLUMNS), output=output)


@app.command("top")
def top(
    group: str,
    topic: Topic = None,
    limit: Limit = 20,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Keys with most unfinished messages."""
    _list("top", group, topic, limit, http, output)


@app.command("hot")
def hot(
    group: str,
    topic: Topic = None,
    limit: Limit = 20,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Keys with the largest shares of what was handed out in the last minute or two."""
    _list("hot", group, topic, limit, http, output)


@app.command("blocked")
def blocked(
    group: str,
    topic: Topic = None,
    limit: Limit = 20,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Keys whose first message failed or is out for long, the oldest first."""
    _list("blocked", group, topic, limit, http, output)


@app.command("paused")
def paused(
    group: str,
    topic: Topic = None,
    limit: Limit = 20,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Paused keys, by whom and why."""
    _list("paused", group, topic, limit, http, output)
