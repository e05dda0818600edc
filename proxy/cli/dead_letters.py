"""``orderlane dead-letters``: list, show, export and redrive the dead letters of a group."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote, urlencode

import orjson
import typer

from proxy.cli.confirmation import Yes, confirm, may_ask
from proxy.cli.connect import actor, ask_proxy, body_of, each_of, given_reason
from proxy.cli.exports import print_export
from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption, finite
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.cli.owner_requests import say_unanswered
from proxy.cli.times import given_ms, shown_time
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError

app = typer.Typer(no_args_is_help=True, help="List, export and redrive dead letters of a group.")

_COLUMNS = (
    *("dead_letter", "topic", "key", "attempts", "reason", "first_failure", "last_failure"),
    *("redrives", "message_id"),
)
_STATE = ("group", "state", "sent", "skipped", "left", "rate", "reason", "note")
_TIMEOUT_S = 30.0

Topic = Annotated[str | None, typer.Option(help="only dead letters from this topic")]
Key = Annotated[str | None, typer.Option(help="only dead letters with this order key")]
Since = Annotated[str | None, typer.Option(help="only dead letters stored at or after this time")]
WithReason = Annotated[
    str | None, typer.Option("--reason", help="only dead letters with this text in their reason")
]
#: Dead letters of one answer of a proxy.
_MOST = 10_000
Limit = Annotated[
    int, typer.Option(min=1, max=_MOST, help="maximum number of dead letters, oldest first")
]
Everything = Annotated[bool, typer.Option("--all", help="include redriven dead letters")]
Rate = Annotated[
    float, typer.Option(help="maximum messages per second; 0 for no limit", callback=finite)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="count only, change nothing")]
Skip = Annotated[
    list[str] | None,
    typer.Option(help="dead letter to leave out, such as broker-a_0@17; repeatable"),
]


@app.command("ls")
def ls(
    group: GroupArgument,
    topic: Topic = None,
    key: Key = None,
    since: Since = None,
    reason: WithReason = None,
    limit: Limit = 100,
    everything: Everything = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List dead letters that are not redriven yet, oldest first."""
    rows: list[dict[str, Any]] = []
    positions: str | None = None
    while True:  # a request reads a part of many dead letters
        asked = (topic, key, since, reason)
        left = limit - len(rows)
        given = _query(*asked, everything=everything, limit=left, positions=positions)
        found = orjson.loads(ask_proxy(http, f"{_place(group)}?{given}", timeout_s=_TIMEOUT_S))
        rows += map(_with_times, found["dead_letters"])
        before, positions = positions, found["positions"]
        if found["complete"] or len(rows) >= limit or positions == before:
            break
    rows.sort(key=lambda row: int(row["store_ms"]))
    print_rows(rows, columns=_COLUMNS, output=output)
    waiting = found["waiting"]
    known = "an unknown number of dead letters"
    if waiting is not None:
        known = number(waiting, "dead letter")
    say(f"{known} of {group} not redriven, {len(rows):,} shown")
    say_unanswered(found)
    if not found["complete"]:
        how = "raise --limit" if limit < _MOST else f"orderlane dead-letters export {group} has all"
        say(f"the list may be incomplete: {how}")
    if (redrive := found["redrive"]) is not None:
        reason = f": {redrive['reason']}" if redrive["reason"] else ""
        say(f"last redrive at this proxy: {redrive['state']}, {redrive['sent']:,} sent{reason}")


@app.command("show")
def show(
    group: GroupArgument,
    dead_letter: Annotated[
        str, typer.Argument(help="queue and offset, such as broker-a_0@17, or message id")
    ],
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show a dead letter with its properties and body (base64 if it is not UTF-8)."""
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
    group: GroupArgument,
    topic: Topic = None,
    key: Key = None,
    since: Since = None,
    reason: WithReason = None,
    count: Annotated[int | None, typer.Option(min=1, help="maximum number of dead letters")] = None,
    everything: Everything = False,
    http: HttpOption = DEFAULT_HTTP,
) -> None:
    """Export dead letters with properties and bodies, each as one line of JSON.

    They are printed queue by queue, oldest first. A body that is not UTF-8 is printed as base64 in
    "body_base64". Exit code 2 means that the output is incomplete.
    """
    given = _query(topic, key, since, reason, everything=everything, count=count)
    path = f"{_place(group)}/export" + (f"?{given}" if given else "")
    printed = print_export(http, path, thing="dead letter")
    more = ", there may be more: raise --count" if printed == count else ""
    say(f"{number(printed, 'dead letter')} of {group} exported{more}")


@app.command("redrive")
def redrive(
    group: GroupArgument,
    reason: Annotated[
        str | None, typer.Option(help="reason, stored in the audit topic; not needed to dry-run")
    ] = None,
    rate: Rate = 0.0,
    dry_run: DryRun = False,
    skip: Skip = None,
    yes: Yes = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Redrive dead letters: send them to their original topics, one at a time, oldest first.

    All groups of a topic receive the messages. Dead letters that arrive during the redrive are not
    included. The proxy does the work: "ls" shows its progress, and a new redrive continues a
    stopped one. It asks before it begins.
    """
    if not dry_run:
        may_ask(yes)
        if not yes:
            plan = _changed(
                http, group, "redrive", dry_run=True, skip=skip or [], **given_reason(reason, True)
            )
            left = number(plan["left"], "dead letter")
            confirm(f"send {left} of {group} to their original topics?", yes=yes)
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
    group: GroupArgument,
    reason: Annotated[str, typer.Option(help="reason, stored in the audit topic")],
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Stop the redrive of the proxy, or of one of its workers; the next one continues with the
    rest.
    """
    refusals: list[str] = []
    for each in each_of(http):
        try:
            _act(each, group, "stop", output, reason=reason)
        except OrderlaneError as error:
            refusals.append(str(error))
        else:
            return
    raise OrderlaneError("; ".join(dict.fromkeys(refusals)))


def _act(http: str, group: str, verb: str, output: OutputFormat, **asked: Any) -> None:
    print_rows([_changed(http, group, verb, **asked)], columns=_STATE, output=output)


def _changed(http: str, group: str, verb: str, **asked: Any) -> dict[str, Any]:
    body = body_of({"by": actor(), **asked})
    path = f"{_place(group)}/{verb}"
    return dict(orjson.loads(ask_proxy(http, path, body=body, timeout_s=_TIMEOUT_S)))


def _query(
    topic: str | None,
    key: str | None,
    since: str | None,
    reason: str | None,
    *,
    everything: bool,
    **more: int | str | None,
) -> str:
    """Return the query string of a selection, without what is not given."""
    asked = {
        "topic": topic,
        "key": key,
        "since_ms": None if since is None else given_ms(since, option="--since"),
        "reason": reason,
        "all": "true" if everything else None,
        **more,
    }
    return urlencode({name: value for name, value in asked.items() if value is not None})


def _place(group: str) -> str:
    return f"/api/groups/{quote(group, safe='')}/dead-letters"


def _with_times(row: dict[str, Any]) -> dict[str, Any]:
    """Return *row* with ISO times beside those in milliseconds."""
    return {
        **row,
        "first_failure": shown_time(row["first_failure_ms"]),
        "last_failure": shown_time(row["last_failure_ms"]),
    }
