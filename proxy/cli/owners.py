"""``orderlane owners``: list queue owners; drain and resume proxies, hand queues over."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from proxy.cli.connect import one_of
from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.cli.owner_requests import ReasonOption, change, look, path_of, say_unanswered
from proxy.cli.times import shown_time
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError

app = typer.Typer(
    no_args_is_help=True, help="List queue owners; drain and resume proxies, hand queues over."
)

_COLUMNS = ("group", "topic", "queue", "state", "owner", "http", "epoch", "since")
_STATE = ("proxy", "http", "state", "owned", "reason")
#: Longer than any reasonable ``ownership.drain_s``.
_TIMEOUT_S = 600.0
#: How long a proxy tries to take a queue that it expects.
_TAKEN_WITHIN_S, _LOOK_AGAIN_S = 30.0, 0.3

Node = Annotated[
    str, typer.Argument(metavar="NODE", help="owner as shown by ls, or host:port of its HTTP port")
]


@app.command("ls")
def ls(
    group: Annotated[str | None, typer.Argument(help="group (default: all of the proxy)")] = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the queues of the proxy's groups with their owners, from the ownership records."""
    found = look(http, path_of("owners"), group=group)
    rows = [{**row, "since": shown_time(row["since_ms"])} for row in found["queues"]]
    print_rows(rows, columns=_COLUMNS, output=output)
    say_unanswered(found)
    if found["state"] != "serving":
        say(f"the proxy at {http} is {found['state']}: {found['reason']}")


@app.command("drain")
def drain(
    node: Node,
    reason: ReasonOption,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Drain a proxy: hand over its queues and refuse clients until it is resumed or restarted.

    Returns when the hand-over is complete. Exit code 1 means that queues were left after the
    proxy's ownership.drain_s, because clients hold messages of them or a broker does not answer.
    """
    row = change(
        _http_of(node, http), path_of("owners", "drain"), {"reason": reason}, timeout_s=_TIMEOUT_S
    )
    print_rows([row], columns=_STATE, output=output)
    if row["owned"]:
        say(f"{number(row['owned'], 'queue')} not handed over yet: see orderlane owners ls")
        raise typer.Exit(1)


@app.command("resume")
def resume(
    node: Node,
    reason: ReasonOption,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Resume a drained proxy."""
    row = change(_http_of(node, http), path_of("owners", "resume"), {"reason": reason})
    print_rows([row], columns=_STATE, output=output)


@app.command("handoff")
def handoff(
    group: GroupArgument,
    topic: Annotated[str, typer.Argument(help="topic of the group")],
    queue: Annotated[str, typer.Argument(help="queue as shown by ls, such as broker-a_0")],
    node: Node,
    reason: ReasonOption,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Hand one queue over to a proxy with clients of the group.

    The proxy keeps the queue while it has clients of the group. Returns when it owns the queue.
    """
    there = _http_of(node, http)
    to = look(there, path_of("owners"), group=group)["proxy"]
    place = ("groups", group, "topics", topic, "queues", queue)
    change(there, path_of(*place, "expect"), {"reason": reason})
    asked = {"reason": reason, "to": to}
    try:
        change(http, path_of(*place, "handoff"), asked, timeout_s=_TIMEOUT_S)
    except OrderlaneError as error:
        raise OrderlaneError(
            f"{error}; {to} still expects queue {queue} and takes it if it becomes free within"
            " about a minute"
        ) from None
    try:
        row = _taken(there, to, group=group, topic=topic, queue=queue)
        why = "has not taken it"
    except OrderlaneError as error:
        row, why = None, f"did not confirm it ({error})"
    if row is None:
        raise OrderlaneError(
            f"queue {queue} was handed over, but {to} {why}: if it does not take the queue, another"
            " proxy will; see orderlane owners ls"
        )
    print_rows([{**row, "since": shown_time(row["since_ms"])}], columns=_COLUMNS, output=output)


def _taken(http: str, owner: str, *, group: str, topic: str, queue: str) -> dict[str, Any] | None:
    """Return the row of the queue once *owner* has it; None after a timeout."""
    until = time.monotonic() + _TAKEN_WITHIN_S
    while time.monotonic() < until:
        found: dict[str, Any] = look(http, path_of("owners"), group=group)
        for row in found["queues"]:
            if (row["topic"], row["queue"], row["owner"]) == (topic, queue, owner):
                return dict(row)
        time.sleep(_LOOK_AGAIN_S)
    return None


def _http_of(node: str, http: str) -> str:
    """Return the HTTP address of *node*, looked up at the proxy at *http*.

    Raises OrderlaneError for an address shared by workers, which names none of them.
    """
    if "@" not in node:
        if (worker := one_of(node)) != node:
            raise OrderlaneError(
                f"{node} is shared by several workers: name one of them, such as {worker}"
            )
        return node
    http = one_of(http)
    found: dict[str, Any] = look(http, path_of("owners"))
    if found["proxy"] == node:
        return http
    rows = found["queues"]
    for row in rows:
        if row["owner"] == node and row["http"]:
            return str(row["http"])
    say_unanswered(found)
    known = ", ".join(sorted({row["owner"] for row in rows if row["owner"]})) or "none"
    raise OrderlaneError(f"no proxy {node!r} owns a queue; current owners: {known}")
