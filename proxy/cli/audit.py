"""``orderlane audit``: changes by operators, from the audit topic."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
import typer

from proxy.cli.connect import ask_proxy
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_json, print_rows, say
from proxy.cli.owner_requests import say_unanswered
from proxy.cli.times import time_text
from proxy.core.access.audit_record import AUDIT_TOPIC
from proxy.diagnosis.findings import number

app = typer.Typer(no_args_is_help=True, help="List changes by operators, from the audit topic.")

_COLUMNS = ("at", "actor", "verb", "group", "target", "reason", "before", "after", "failed")
_TIMEOUT_S = 30.0
_LOOK_S = 1.0

Group = Annotated[str | None, typer.Option(help="only changes of this group")]
Target = Annotated[str | None, typer.Option(help="only changes of this key, queue or lease")]
#: Records of one answer of a proxy.
_MOST = 10_000
Limit = Annotated[
    int, typer.Option(help="maximum number of changes, newest first", min=1, max=_MOST)
]


@app.command("ls")
def ls(
    group: Group = None,
    target: Target = None,
    limit: Limit = 100,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List changes, newest last.

    They are looked for among the newest 10,000 records of each broker.
    """
    found = _ask(http, group=group, target=target, limit=limit)
    records = found["records"]
    _show(records, output)
    say_unanswered(found)
    cut = len(records) == limit or not found.get("unanswered")  # else nothing else is missing
    if cut and not found.get("complete", len(records) < limit):  # an older proxy does not say
        how = "raise --limit"
        if len(records) < limit or limit == _MOST:
            how = f"orderlane messages export {AUDIT_TOPIC} has all"
        say(f"the newest {number(len(records), 'record')} shown, there may be older ones: {how}")


@app.command("tail")
def tail(
    group: Group = None,
    target: Target = None,
    limit: Limit = 10,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Follow changes until interrupted, starting with the newest ones."""
    page = _ask(http, group=group, target=target, limit=limit)
    silent: set[str] = set()
    while True:
        if (now := set(page.get("unanswered", ()))) - silent:
            say_unanswered(page)
        silent = now
        if output is OutputFormat.JSON:
            for record in page["records"]:
                print_json(record)
        elif page["records"]:
            _show(page["records"], output)
        time.sleep(_LOOK_S)
        after = page["position"] or None
        page = _ask(http, group=group, target=target, limit=_MOST, after=after)
        if not (page.get("complete", True) or page.get("unanswered")):
            say("some changes since the last look are not shown: orderlane audit ls")


def _ask(http: str, **asked: Any) -> dict[str, Any]:
    given = urlencode({name: value for name, value in asked.items() if value is not None})
    found: dict[str, Any] = orjson.loads(
        ask_proxy(http, f"/api/audit?{given}", timeout_s=_TIMEOUT_S)
    )
    return found


def _show(records: list[dict[str, Any]], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        rows = records
    else:
        rows = [
            {
                **record,
                "at": time_text(record["at_ms"]),
                "before": _short(record["before"]),
                "after": _short(record["after"]),
            }
            for record in records
        ]
    print_rows(rows, columns=_COLUMNS, output=output)


def _short(value: Any) -> str:
    """Return the main fields of *value* as JSON."""
    if isinstance(value, dict):
        shown = ("queue", "state", "offset", "paused", "skipped", "retried", "rate", "anew")
        value = {name: value[name] for name in shown if name in value} or value
    return "-" if value is None else orjson.dumps(value).decode()
