"""``orderlane key``: which keys are parked; park one, redrive it, stop that."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import orjson
import typer

from proxy.cli.connect import ask_proxy, proxy_groups
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows
from proxy.errors import OrderlaneError, OwnedElsewhere

app = typer.Typer(no_args_is_help=True, help="Keys of a group: which are parked, and what to do.")

_COLUMNS = ("key", "topic", "queue", "state", "copies", "not_copied", "by", "reason")

Topic = Annotated[str | None, typer.Option(help="the topic, if the group has more than one")]
Reason = Annotated[str, typer.Option(help="why, for logs and histories")]
Rate = Annotated[float, typer.Option(help="messages a second at most; 0: no limit")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only count what is parked")]


@app.command("parked")
def parked(
    group: str,
    topic: Topic = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the parked keys of the queues that the proxy owns."""
    rows = orjson.loads(ask_proxy(http, f"{_place(http, group, topic)}/parked"))
    print_rows(rows, columns=_COLUMNS, output=output)


@app.command("park")
def park(
    group: str,
    key: str,
    topic: Topic = None,
    reason: Reason = "",
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Park a key: its messages wait in the parked topic, in order, until it is redriven."""
    _act(http, group, topic, "park", output, key=key, reason=reason)


@app.command("redrive")
def redrive(
    group: str,
    key: str,
    topic: Topic = None,
    dry_run: DryRun = False,
    rate: Rate = 0.0,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Hand out what is parked of a key, in order; then it goes on as any other."""
    _act(http, group, topic, "redrive", output, key=key, dry_run=dry_run, rate=rate)


@app.command("stop")
def stop(
    group: str,
    key: str,
    topic: Topic = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Redrive a key no longer: the rest of it stays parked."""
    _act(http, group, topic, "stop", output, key=key)


def _act(
    http: str, group: str, topic: str | None, verb: str, output: OutputFormat, **asked: Any
) -> None:
    path = f"{_place(http, group, topic)}/{verb}"
    body = orjson.dumps({"by": "orderlane key", **asked})
    try:
        answer = ask_proxy(http, path, body=body)
    except OwnedElsewhere as elsewhere:
        answer = _ask_owners(elsewhere, path, body)
    row = orjson.loads(answer)
    print_rows([row], columns=_COLUMNS, output=output)


def _ask_owners(elsewhere: OwnedElsewhere, path: str, body: bytes) -> bytes:
    """Ask the proxies that own the other queues, each once."""
    refusals = [str(elsewhere)]
    for address in elsewhere.addresses:
        try:
            answer = ask_proxy(address, path, body=body)
        except OrderlaneError as error:
            refusals.append(str(error))
        else:
            typer.echo(f"done by the proxy at {address}, which owns the key's queue", err=True)
            return answer
    raise OrderlaneError("\n".join(refusals))


def _place(http: str, group: str, topic: str | None) -> str:
    if topic is None:
        known = proxy_groups(http).get(group)
        if known is None:
            raise OrderlaneError(f"the proxy at {http} has no group {group!r}")
        names = [each["name"] for each in known["topics"]]
        if len(names) != 1:
            raise OrderlaneError(f"group {group!r} has topics {', '.join(names)}: add --topic")
        (topic,) = names
    return f"/api/groups/{quote(group, safe='')}/topics/{quote(topic, safe='')}/keys"
