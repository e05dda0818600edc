"""``orderlane messages``: list, follow, show and resend the messages of a topic."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
import typer

from proxy.cli.confirmation import Yes, confirm, may_ask
from proxy.cli.exports import print_export
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import (
    Output,
    OutputFormat,
    print_json,
    print_preview,
    print_rows,
    print_text,
    say,
)
from proxy.cli.owner_requests import change, look, path_of, say_unanswered
from proxy.cli.times import given_ms, shown_time
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from proxy.operator.message_browser import SEARCHED_BACK
from proxy.operator.message_lookup import MOST_SHOWN

app = typer.Typer(
    no_args_is_help=True, help="List, follow, show, export and resend messages of a topic."
)

_COLUMNS = ("message", "stored", "keys", "tag", "bytes", "preview")
_RESENT = ("message", "keys", "to", "sent", "dry_run")
_FIELDS = ("message", "topic", "message_id", "keys", "tag", "born", "stored", "bytes")
_STATE = ("group", "state", "key", "client", "attempt", "ends_in_ms")
_LARGEST_PAGE = 200
#: Messages up to which all queues are read as far back as if one had all the newest messages.
_READ_BACK = 2_000
_LOOK_S = 0.5
_HEX_BYTES = 16

Rows = list[dict[str, Any]]

TopicArgument = Annotated[str, typer.Argument(help="topic")]
MessageArgument = Annotated[str, typer.Argument(help="queue and offset, such as broker-a_0@17")]
Queue = Annotated[
    str | None, typer.Option(help="only this queue, such as broker-a_0 (default: all)")
]
Contains = Annotated[
    str, typer.Option("--grep", help="only messages with this text in the body or a property")
]
FromOffset = Annotated[int | None, typer.Option(min=0, help="begin at this offset of --queue")]
FromTime = Annotated[
    str | None, typer.Option(help="begin at the first message stored at or after this time")
]


class BodyForm(StrEnum):
    """Forms of a body on the terminal."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@app.command("ls")
def ls(
    topic: TopicArgument,
    queue: Queue = None,
    key: Annotated[str | None, typer.Option(help="only messages with this message key")] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="only messages with this message id")
    ] = None,
    from_offset: FromOffset = None,
    from_time: FromTime = None,
    grep: Contains = "",
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="maximum number of messages, oldest first")
    ] = 20,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List messages of a topic: by default the newest ones, of all queues by store time.

    Keys and ids are looked up in the indexes of the brokers, which return their newest 64 messages
    at most. --grep reads the messages themselves: without --from-offset or --from-time the last
    5,000.
    """
    start = {
        "queue": queue,
        "offset": from_offset,
        "time_ms": _time(from_time),
        "contains": grep or None,
    }
    if key is not None or message_id is not None:
        # The proxy refuses what is no part of such a search.
        asked = {"key": key, "id": message_id, "limit": min(limit, MOST_SHOWN), **start}
        found = look(http, _place(topic), **asked)
        rows = found["messages"][-limit:]
        say_unanswered(found)
        if not found["complete"] or len(rows) < len(found["messages"]):
            # With fewer, a broker's limit of bytes was reached.
            can_raise = len(rows) == limit < MOST_SHOWN
            more = "raise --limit" if can_raise else "search with --grep and --from-time"
            say(f"the newest {number(len(rows), 'message')} shown, there may be older ones: {more}")
    elif from_offset is None and from_time is None and not grep:
        rows, older, unanswered = _newest(http, topic, queue, limit)
        say_unanswered({"unanswered": unanswered})
        if older:
            shown = number(len(rows), "message")
            say(f"the newest {shown} shown, there are older ones: raise --limit or use --from-time")
    else:
        rows, complete = [], True
        passed: bool | None = None
        unanswered = {}
        for page in _pages(http, topic, limit=limit, **start):
            rows += page["messages"]
            unanswered |= page.get("unanswered", {})
            complete = page["complete"]
            if passed is None:
                passed = page.get("older", False)  # messages before the first page
        say_unanswered({"unanswered": unanswered})
        if not complete:
            say(f"the first {number(len(rows), 'message')} shown, there may be more: raise --limit")
        if passed and from_offset is None and from_time is None:
            say(f"only the newest {SEARCHED_BACK:,} messages were searched: use --from-time")
    print_rows([_shown(row) for row in rows], columns=_COLUMNS, output=output)


@app.command("tail")
def tail(
    topic: TopicArgument,
    queue: Queue = None,
    grep: Contains = "",
    count: Annotated[int | None, typer.Option(min=1, help="exit after N messages")] = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Follow new messages of a topic until interrupted; no group's offsets change."""
    asked = {"queue": queue, "contains": grep or None, "limit": _LARGEST_PAGE}
    page = look(http, _place(topic), **asked, start="end")
    left = count
    silent: set[str] = set()
    while left is None or left > 0:
        if (now := set(page.get("unanswered", ()))) - silent:
            say_unanswered(page)
        silent = now
        page = look(http, _place(topic), **asked, positions=page["positions"])
        rows = page["messages"][:left]
        for row in rows:
            _print_followed(row, output)
        left = None if left is None else left - len(rows)
        if page["complete"]:
            time.sleep(_LOOK_S)


@app.command("show")
def show(
    topic: TopicArgument,
    message: MessageArgument,
    group: Annotated[
        str | None, typer.Option(help="also show the state of the message in this group")
    ] = None,
    body: Annotated[BodyForm, typer.Option(help="form of the body")] = BodyForm.AUTO,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show one message with all its properties and its body.

    With --group also whether it is waiting, leased, delivered (and failed), parked, dead-lettered,
    finished, or unknown, as far as the proxy that owns the queue knows.
    """
    found: dict[str, Any] = look(http, f"{_place(topic)}/show", message=message, group=group)
    if output is OutputFormat.JSON:
        print_json(found)
        return
    row = _shown(found)
    fields = [{"field": name, "value": row[name]} for name in _FIELDS]
    fields += [
        {"field": f"property {name}", "value": value}
        for name, value in sorted(found["properties"].items())
    ]
    if (state := found.get("state")) is not None:
        fields += [
            {"field": f"{state['group']}: {name}", "value": state[name]}
            for name in _STATE[1:]
            if state[name] is not None
        ]
    print_rows(fields, columns=("field", "value"), output=output)
    print_text("")
    print_text(body_text(found, body))


@app.command("export")
def export(
    topic: TopicArgument,
    queue: Queue = None,
    from_offset: FromOffset = None,
    from_time: FromTime = None,
    grep: Contains = "",
    count: Annotated[int | None, typer.Option(min=1, help="maximum number of messages")] = None,
    http: HttpOption = DEFAULT_HTTP,
) -> None:
    """Export messages with properties and bodies, each as one line of JSON, oldest first.

    Messages stored after the beginning are not included. A body that is not UTF-8 is printed as
    base64 in "body_base64". Exit code 2 means that the output is incomplete.
    """
    asked = {
        "queue": queue,
        "offset": from_offset,
        "time_ms": _time(from_time),
        "contains": grep or None,
        "count": count,
    }
    given = urlencode({name: value for name, value in asked.items() if value is not None})
    path = f"{_place(topic)}/export" + (f"?{given}" if given else "")
    printed = print_export(http, path, thing="message")
    more = ", there may be more: raise --count" if printed == count else ""
    say(f"{number(printed, 'message')} of {topic} exported{more}")


@app.command("resend")
def resend(
    topic: TopicArgument,
    message: MessageArgument,
    reason: Annotated[str, typer.Option(help="reason, stored in the audit topic")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the effect, send nothing")
    ] = False,
    yes: Yes = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Send a copy of a message to its topic, as a new message behind all others of its key.

    All groups of the topic receive it. Its key, tag, body and properties are those of the message.
    """
    if not dry_run:
        may_ask(yes)
    asked = {"message": message, "reason": reason}
    path = f"{_place(topic)}/resend"
    if dry_run or not yes:
        plan = change(http, path, {**asked, "dry_run": True})
        if dry_run:
            print_rows([plan], columns=_RESENT, output=output)
            return
        print_preview([plan], columns=_RESENT)
        confirm(f"send a copy of {message} to queue {plan['to']} of {topic}?", yes=yes)
    print_rows([change(http, path, asked)], columns=_RESENT, output=output)


def _place(topic: str) -> str:
    return path_of("topics", topic, "messages")


def _newest(
    http: str, topic: str, queue: str | None, limit: int
) -> tuple[Rows, bool, dict[str, str]]:
    """Return the newest *limit* messages by store time, oldest first, whether there are older ones,
    and the errors of brokers that did not answer, whose queues are left out.

    All queues are read equally far back. Those that may have further ones of the newest messages
    are then read as far back as if they had all.
    """
    found = look(http, _place(topic), queue=queue, start="end", limit=1)
    unanswered: dict[str, str] = found.get("unanswered", {})
    places = (part.rpartition("@") for part in found["positions"].split(",") if part)
    ends = {qid: int(end) for qid, _, end in places if end.isdecimal()}
    if not ends:
        return [], False, unanswered  # no readable queue
    back = max(limit // len(ends) + 1, min(limit, _READ_BACK // len(ends)))
    begins = {qid: max(0, end - back) for qid, end in ends.items()}
    rows = _between(http, topic, queue, begins, ends)
    oldest_ms = rows[-limit]["store_ms"] if len(rows) >= limit else None
    short = [qid for qid, ms in _cut(rows, begins).items() if oldest_ms is None or ms > oldest_ms]
    if short and back < limit:
        begins |= {qid: max(0, ends[qid] - limit) for qid in short}
        rows = _between(http, topic, queue, begins, ends)
    return rows[-limit:], len(rows) > limit or bool(_cut(rows, begins)), unanswered


def _between(
    http: str, topic: str, queue: str | None, begins: dict[str, int], ends: dict[str, int]
) -> Rows:
    """Return the messages between two offsets of each queue, by store time."""
    begin = ",".join(f"{qid}@{offset}" for qid, offset in begins.items())
    wanted = {"queue": queue, "contains": None, "positions": begin}
    count = sum(ends[qid] - begins[qid] for qid in ends)
    rows: Rows = []
    for page in _pages(http, topic, limit=max(1, count), **wanted):
        rows += page["messages"]
    return rows


def _cut(rows: Rows, begins: dict[str, int]) -> dict[str, int]:
    """Return the store time of the first message of each queue that may have earlier ones: it is
    where the reading began.
    """
    first: dict[str, tuple[str, int]] = {}
    for row in rows:
        qid, _, offset = row["message"].rpartition("@")
        first.setdefault(qid, (offset, row["store_ms"]))
    return {qid: ms for qid, (offset, ms) in first.items() if 0 < begins[qid] == int(offset)}


def _pages(http: str, topic: str, *, limit: int, **start: Any) -> Iterator[dict[str, Any]]:
    """Yield pages of up to *limit* messages together, until the end of all queues."""
    asked = {"queue": start["queue"], "contains": start["contains"]}
    left = limit
    page = look(http, _place(topic), limit=min(left, _LARGEST_PAGE), **start)
    while True:
        yield page
        left -= len(page["messages"])
        if page["complete"] or left <= 0:
            return
        page = look(
            http,
            _place(topic),
            limit=min(left, _LARGEST_PAGE),
            positions=page["positions"],
            **asked,
        )


def _time(text: str | None) -> int | None:
    return None if text is None else given_ms(text, option="--from-time")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "born": shown_time(row["born_ms"]), "stored": shown_time(row["store_ms"])}


def _print_followed(row: dict[str, Any], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(row)
        return
    shown = _shown(row)
    print_text("  ".join("-" if shown[name] is None else _line(shown[name]) for name in _COLUMNS))


def _line(value: object) -> str:
    """Return *value* in one line: its line breaks and tabs are escaped."""
    return str(value).replace("\n", "\\n").replace("\t", "\\t")


def body_text(found: dict[str, Any], form: BodyForm) -> str:
    """Return the body of a shown message in *form*. ``AUTO``: JSON if it is an object or a list,
    else text, or hex if it is not UTF-8. Raises OrderlaneError for a body not of that form.
    """
    text: str | None = found.get("body")
    raw = text.encode() if text is not None else base64.b64decode(found["body_base64"])
    if form is BodyForm.AUTO:
        form = BodyForm.HEX if text is None else BodyForm.TEXT
        if text is not None and text.lstrip()[:1] in ("{", "[") and _as_json(raw) is not None:
            form = BodyForm.JSON
    if form is BodyForm.HEX:
        return _hex(raw)
    if form is BodyForm.TEXT:
        return text if text is not None else raw.decode(errors="backslashreplace")
    if (shown := _as_json(raw)) is None:
        raise OrderlaneError(f"the body of {found['message']} is not JSON: use --body text or hex")
    return shown


def _as_json(raw: bytes) -> str | None:
    try:
        return orjson.dumps(orjson.loads(raw), option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONDecodeError:
        return None


def _hex(raw: bytes) -> str:
    """Return *raw* as lines of offset, bytes and ASCII, as hexdump does."""
    lines = []
    for start in range(0, len(raw), _HEX_BYTES):
        part = raw[start : start + _HEX_BYTES]
        plain = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{_HEX_BYTES * 3}} {plain}")
    return "\n".join(lines)
