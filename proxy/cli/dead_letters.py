"""``orderlane dead-letters``: what a group gave up; export it, send it back, stop that."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import orjson
import typer

from proxy.cli.connect import actor, ask_proxy, body_of, given_reason, lines_of_proxy
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows, say

app = typer.Typer(no_args_is_help=True, help="Dead letters of a group, and what to do with them.")

_COLUMNS = (
    *("dead_letter", "topic", "key", "attempts", "reason", "first_failure", "last_failure"),
    *("redrives", "message_id"),
)
_STATE = ("group", "state", "sent", "skipped", "left", "rate", "reason", "note")
_TIMEOUT_S = 30.0

Topic = Annotated[str | None, typer.Option(help="only those that came from this topic")]
Key = Annotated[str | None, typer.Option(help="only those of this order key")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="how many, from the oldest on")]
Everything = Annotated[bool, typer.Option("--all", help="also those that were redriven")]
Rate = Annotated[float, typer.Option(help="messages a second at most; 0: no limit")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only count them")]
Skip = Annotated[
    list[str] | None, typer.Option(help="pass over this one, as broker-a_0@17; may be repeated")
]


@app.command("ls")
def ls(
    group: str,
    topic: Topic = None,
    key: Key = None,
    limit: Limit = 100,
    everything: Everything = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List dead letters that wait for a redrive, the oldest first."""
    asked = {"limit": limit, "topic": topic, "key": key, "all": "true" if everything else None}
    given = urlencode({name: value for name, value in asked.items() if value is not None})
    found = orjson.loads(ask_proxy(http, f"{_place(group)}?{given}", timeout_s=_TIMEOUT_S))
    rows = [_with_times(row) for row in found["dead_letters"]]
    print_rows(rows, columns=_COLUMNS, output=output)
    say(f"{found['waiting']:,} dead letters of {group} wait, {len(rows):,} are shown")
    if not found["complete"]:
        say("there may be more of what you asked for: see --limit")
    if (redrive := found["redrive"]) is not None:
        reason = f": {redrive['reason']}" if redrive["reason"] else ""
        say(f"last redrive here: {redrive['state']}, {redrive['sent']:,} sent back{reason}")


@app.command("show")
def show(
    group: str,
    dead_letter: Annotated[
        str, typer.Argument(help="its place, as broker-a_0@17, or its message id")
    ],
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show a dead letter with its properties and its body, base64 if that is no text."""
    path = f"{_place(group)}/show?{urlencode({'dead_letter': dead_letter})}"
    row = _with_times(orjson.loads(ask_proxy(http, path, timeout_s=_TIMEOUT_S)))
    if output is OutputFormat.JSON:
        print_rows([row], columns=_COLUMNS, output=output)
        return
    fields = [{"field": name, "value": row.get(name)} for name in (*_COLUMNS, "origin", "tag")]
    fields += [
        {"field": f"property {name}", "value": value} for name, value in row["properties"].items()
    ]
    body = "body" if "body" in row else "body_base64"
    fields.append({"field": body, "value": row[body]})
    print_rows(fields, columns=("field", "value"), output=output)


@app.command("export")
def export(
    group: str,
    topic: Topic = None,
    key: Key = None,
    count: Annotated[int | None, typer.Option(min=1, help="how many at most")] = None,
    everything: Everything = False,
    http: HttpOption = DEFAULT_HTTP,
) -> None:
    """Print dead letters with their properties and bodies, each as one line of JSON.

    Queue by queue, the oldest of each first. A body that is no UTF-8 text stands as base64 under
    "body_base64". Exit code 2: what was printed is not all.
    """
    asked = {"count": count, "topic": topic, "key": key, "all": "true" if everything else None}
    given = urlencode({name: value for name, value in asked.items() if value is not None})
    path = f"{_place(group)}/export" + (f"?{given}" if given else "")
    printed = 0
    for line in lines_of_proxy(http, path):
        sys.stdout.write(line.decode() + "\n")
        printed += 1
    sys.stdout.flush()
    say(f"{printed:,} dead letters of {group} exported")


@app.command("redrive")
def redrive(
    group: str,
    reason: Annotated[str | None, typer.Option(help="why, for the audit")] = None,
    rate: Rate = 0.0,
    dry_run: DryRun = False,
    skip: Skip = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Send dead letters back to the topics they came from, one by one, the oldest first.

    All groups of a topic get what comes back. Those that come to the dead letters meanwhile stay
    there. The proxy does it; "ls" says how far it is, and once stopped it goes on where it was.
    """
    _act(
        http,
        group,
        "redrive",
        output,
        rate=rate,
        dry_run=dry_run,
        skip=skip or [],
        **given_reason(reason, dry_run),
    )


@app.command("stop")
def stop(
    group: str,
    reason: Annotated[str, typer.Option(help="why, for the audit")],
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Send no more of them back: the rest waits for the next redrive."""
    _act(http, group, "stop", output, reason=reason)


def _act(http: str, group: str, verb: str, output: OutputFormat, **asked: Any) -> None:
    body = body_of({"by": actor(), **asked})
    path = f"{_place(group)}/{verb}"
    row = orjson.loads(ask_proxy(http, path, body=body, timeout_s=_TIMEOUT_S))
    print_rows([row], columns=_STATE, output=output)


def _place(group: str) -> str:
    return f"/api/groups/{quote(group, safe='')}/dead-letters"


def _with_times(row: dict[str, Any]) -> dict[str, Any]:
    """*row*, its times for people beside those in milliseconds."""
    return {
        **row,
        "first_failure": _time(row["first_failure_ms"]),
        "last_failure": _time(row["last_failure_ms"]),
    }


def _time(ms: int | None) -> str | None:
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
