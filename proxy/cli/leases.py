"""``orderlane leases``: which messages clients have in their hands; extend one, revoke one."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.asking import ReasonOption, change, look, path_of
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows, say

app = typer.Typer(no_args_is_help=True, help="Leases: what clients have in their hands now.")

_COLUMNS = ("lease", "offset", "key", "client", "attempt", "ends_in_ms", "run")

Name = Annotated[str, typer.Argument(metavar="LEASE", help="as ls shows it")]


@app.command("ls")
def ls(
    group: str,
    topic: Annotated[str | None, typer.Option(help="only those of this topic")] = None,
    queue: Annotated[str | None, typer.Option(help="only those of this queue")] = None,
    key: Annotated[str | None, typer.Option(help="only those of this order key")] = None,
    client: Annotated[str | None, typer.Option(help="only those of this client")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="how many")] = 1000,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the live leases of the queues that the proxy owns, those that end next first."""
    wish = {"topic": topic, "queue": queue, "key": key, "client": client, "limit": limit}
    found = look(http, path_of("groups", group, "leases"), **wish)
    print_rows(found["leases"], columns=_COLUMNS, output=output)
    if len(found["leases"]) < found["live"]:
        say(f"{found['live']:,} live, {len(found['leases']):,} are shown: see --limit")


@app.command("show")
def show(
    group: str, lease: Name, http: HttpOption = DEFAULT_HTTP, output: Output = OutputFormat.TABLE
) -> None:
    """Show one lease, whichever proxy granted it."""
    row = look(http, path_of("groups", group, "leases", lease))
    print_rows([row], columns=(*_COLUMNS, "message_id", "connection"), output=output)


@app.command("extend")
def extend(
    group: str,
    lease: Name,
    reason: ReasonOption,
    ms: Annotated[
        int | None,
        typer.Option(min=1, help="from now; one visibility timeout at most, and by default"),
    ] = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Let a lease run on, as its client could."""
    path = path_of("groups", group, "leases", lease, "extend")
    row = change(http, path, {"reason": reason, "ms": ms})
    print_rows([row], columns=_COLUMNS, output=output)


@app.command("revoke")
def revoke(
    group: str,
    lease: Name,
    reason: ReasonOption,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """End a lease now: its message is offered again, and a late verdict on it counts no more."""
    row = change(http, path_of("groups", group, "leases", lease, "revoke"), {"reason": reason})
    print_rows([row], columns=_COLUMNS, output=output)
