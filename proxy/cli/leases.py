"""``orderlane leases``: list, show, extend and revoke leases."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.connect import each_of
from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.cli.owner_requests import ReasonOption, change, look, path_of

app = typer.Typer(
    no_args_is_help=True, help="List, extend and revoke leases: messages currently held by clients."
)

_COLUMNS = ("lease", "offset", "key", "client", "attempt", "ends_in_ms", "run")

Name = Annotated[
    str,
    typer.Argument(metavar="LEASE", help="lease as shown by ls, such as orders:broker-a_3:812:15"),
]


@app.command("ls")
def ls(
    group: GroupArgument,
    topic: Annotated[str | None, typer.Option(help="only leases of this topic")] = None,
    queue: Annotated[str | None, typer.Option(help="only leases of this queue")] = None,
    key: Annotated[str | None, typer.Option(help="only leases of this order key")] = None,
    client: Annotated[str | None, typer.Option(help="only leases of this client")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="maximum number of leases")] = 1000,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the live leases at the proxy and its workers, the next to expire first."""
    wish = {"topic": topic, "queue": queue, "key": key, "client": client, "limit": limit}
    path = path_of("groups", group, "leases")
    found = [look(each, path, **wish) for each in each_of(http)]
    rows = sorted(
        (row for each in found for row in each["leases"]),
        key=lambda row: (row["ends_in_ms"], row["lease"]),
    )[:limit]
    print_rows(rows, columns=_COLUMNS, output=output)
    if len(rows) < (live := sum(each["live"] for each in found)):
        say(f"{live:,} leases are live, {len(rows):,} shown: raise --limit")


@app.command("show")
def show(
    group: GroupArgument,
    lease: Name,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show one lease of any proxy."""
    row = look(http, path_of("groups", group, "leases", lease))
    print_rows([row], columns=(*_COLUMNS, "message_id", "connection"), output=output)


@app.command("extend")
def extend(
    group: GroupArgument,
    lease: Name,
    reason: ReasonOption,
    ms: Annotated[
        int | None,
        typer.Option(min=1, help="time from now, ms (default and maximum: the visibility timeout)"),
    ] = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Extend a lease on behalf of its client."""
    path = path_of("groups", group, "leases", lease, "extend")
    row = change(http, path, {"reason": reason, "ms": ms})
    print_rows([row], columns=_COLUMNS, output=output)


@app.command("revoke")
def revoke(
    group: GroupArgument,
    lease: Name,
    reason: ReasonOption,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Revoke a lease: deliver its message again, and ignore the client's verdict."""
    row = change(http, path_of("groups", group, "leases", lease, "revoke"), {"reason": reason})
    print_rows([row], columns=_COLUMNS, output=output)
