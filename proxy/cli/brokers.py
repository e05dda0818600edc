"""``orderlane brokers``: the brokers that the nameservers know."""

from __future__ import annotations

from typing import Any

import typer

from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.cli.owner_requests import look, path_of, say_unanswered
from proxy.cli.times import shown_time

app = typer.Typer(no_args_is_help=True, help="List brokers and their replicas.")

_COLUMNS = (
    *("broker", "id", "role", "address", "version", "since", "disk_used", "log_bytes"),
    *("put_rate", "get_rate", "replicas", "clock"),
)


@app.command("ls")
def ls(http: HttpOption = DEFAULT_HTTP, output: Output = OutputFormat.TABLE) -> None:
    """List brokers with address, role, version, disk, log, rates, replicas and clock.

    Figures are those that masters report of themselves: the used share of the disk, the bytes of
    the log, messages per second in the last 10 s. "replicas" is in sync/all of those that elect
    their master, "clock" whether its wall clock jumped ahead; "-" means unknown.
    """
    found: dict[str, Any] = look(http, path_of("brokers"))
    rows = found["brokers"]
    if output is not OutputFormat.JSON:
        rows = [_shown(row) for row in rows]
    print_rows(rows, columns=_COLUMNS, output=output)
    say_unanswered(found)
    if not found["complete"]:
        say("there are more brokers than an answer lists")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    begin, end, ahead_ms = row["log_begin"], row["log_end"], row["clock_ahead_ms"]
    replicas = None
    if row["voters"] is not None:
        replicas = f"{_count(row['in_sync'])}/{_count(row['voters'])}"
    return {
        **row,
        "since": shown_time(row["boot_ms"]),
        "log_bytes": None if begin is None or end is None else end - begin,
        "replicas": replicas,
        "clock": None if ahead_ms is None else f"{ahead_ms // 1000} s ahead" if ahead_ms else "ok",
    }


def _count(ids: str | None) -> int:
    return len([each for each in (ids or "").split(",") if each])
