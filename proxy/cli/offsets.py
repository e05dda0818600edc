"""``orderlane offsets``: show and reset the offsets of a group, skip damaged messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.cli.owner_requests import ReasonOption, change, look, path_of
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError

app = typer.Typer(
    no_args_is_help=True, help="Show and reset a group's offsets, skip damaged messages."
)

_COLUMNS = ("topic", "queue", "begin", "base", "committed", "end", "lag", "state", "owner")
_PLAN = (
    *("topic", "queue", "from", "to", "skipped", "repeated", "leases_ended"),
    "parked_keys_kept",
)
_SKIPPED = ("topic", "queue", "offset", "skipped")
#: Covers a take-over in progress, or a lock that must expire first.
_TIMEOUT_S = 30.0

Topic = Annotated[str | None, typer.Option(help="topic (default: all of the group)")]


@app.command("show")
def show(
    group: GroupArgument,
    topic: Topic = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the offsets of each queue: begin, base, committed and end.

    The base is the next offset that the group needs. All queues are shown, with their owners.
    """
    found = look(http, path_of("groups", group, "offsets"), topic=topic)
    print_rows(found["queues"], columns=_COLUMNS, output=output)


@app.command("reset")
def reset(
    group: GroupArgument,
    reason: ReasonOption,
    topic: Topic = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="queue, repeatable (default: all)")
    ] = None,
    to_offset: Annotated[int | None, typer.Option(min=0, help="continue at this offset")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(help="continue at the first message stored at or after this time"),
    ] = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="continue at the end, skipping all messages")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the effect without resetting")
    ] = False,
    expect: Annotated[
        list[str] | None,
        typer.Option(help="reset only from this base: 812 or broker-a_0=812; repeatable"),
    ] = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Reset the offsets of a group: skip messages, or deliver them again.

    Leases on these queues end, and their verdicts are ignored. Parked keys stay parked. All queues
    are checked first; if one cannot be reset, none is.
    """
    to = _to(to_offset, to_time, skip=skip)
    rows = _chosen(look(http, path_of("groups", group, "offsets"), topic=topic)["queues"], queue)
    expected = _expected(expect or [], rows)
    plans = [
        _ask(http, group, row, reason=reason, to=to, dry_run=True, expected=expected)
        for row in rows
    ]
    if dry_run:
        print_rows(plans, columns=_PLAN, output=output)
        return
    done: list[Any] = []
    try:
        for row in rows:
            done.append(_ask(http, group, row, reason=reason, to=to, expected=expected))
    except OrderlaneError as error:
        if done:
            print_rows(done, columns=_PLAN, output=output)
            raise OrderlaneError(f"{error}; {len(done)} of {len(rows)} queues were reset") from None
        raise
    print_rows(done, columns=_PLAN, output=output)
    say(f"{group}: {number(len(done), 'queue')} reset")


@app.command("skip")
def skip_damaged(
    group: GroupArgument,
    reason: ReasonOption,
    topic: Annotated[str, typer.Option(help="topic")],
    queue: Annotated[
        str, typer.Option(help="queue, such as broker-a_0, or broker-a_0p for its parked messages")
    ],
    offset: Annotated[
        int, typer.Option(min=0, help="offset that the queue or a key waits at (doctor shows it)")
    ],
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Skip a damaged message that a queue or a key waits at.

    Intact messages are never skipped, and no other message is delivered again. At the read position
    of the queue, damaged messages right behind it are skipped too.
    """
    path = path_of("groups", group, "topics", topic, "queues", queue, "skip")
    done = change(http, path, {"reason": reason, "offset": offset}, timeout_s=_TIMEOUT_S)
    print_rows([done], columns=_SKIPPED, output=output)


def _ask(
    http: str,
    group: str,
    row: Mapping[str, Any],
    *,
    reason: str,
    to: dict[str, Any],
    expected: Mapping[tuple[str, str], int],
    dry_run: bool = False,
) -> Any:
    topic, queue = row["topic"], row["queue"]
    path = path_of("groups", group, "topics", topic, "queues", queue, "reset")
    expect = expected.get((topic, queue))
    asked = {"reason": reason, "to": to, "expect": expect, "dry_run": dry_run}
    return change(http, path, asked, timeout_s=_TIMEOUT_S)


def _to(offset: int | None, time: str | None, *, skip: bool) -> dict[str, Any]:
    if (offset is not None) + (time is not None) + skip != 1:
        raise OrderlaneError("give exactly one of --to-offset, --to-time and --skip")
    if offset is not None:
        return {"offset": offset}
    return {"end": True} if time is None else {"time_ms": _milliseconds(time)}


def _milliseconds(time: str) -> int:
    try:
        when = datetime.fromisoformat(time)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None or when.timestamp() < 0:
        raise OrderlaneError(
            f"invalid --to-time {time!r}: give a time with its zone, such as 2026-01-01T00:00:00Z"
        )
    return int(when.timestamp() * 1000)


def _chosen(rows: Sequence[dict[str, Any]], queues: Sequence[str] | None) -> list[dict[str, Any]]:
    if not queues:
        return list(rows)
    known = {row["queue"] for row in rows}
    for queue in queues:
        if queue not in known:
            names = ", ".join(sorted(known)) or "none"
            raise OrderlaneError(f"there is no queue {queue!r}; its queues: {names}")
    return [row for row in rows if row["queue"] in queues]


def _expected(given: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], int]:
    expected = {}
    for each in given:
        queue, equals, number = each.rpartition("=")
        meant = [row for row in rows if row["queue"] == queue or not equals]
        if len(meant) != 1 or not (number.isascii() and number.isdecimal()):
            raise OrderlaneError(
                f"invalid --expect {each!r}: give the base of one queue, as 812 with a single"
                " --queue, or as broker-a_0=812 with a single --topic"
            )
        expected[meant[0]["topic"], meant[0]["queue"]] = int(number)
    return expected
