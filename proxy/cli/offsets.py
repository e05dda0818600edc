"""``orderlane offsets``: where a group stands in its queues; have it go on elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from proxy.cli.asking import ReasonOption, change, look, path_of
from proxy.cli.options import DEFAULT_HTTP, HttpOption
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.errors import OrderlaneError

app = typer.Typer(no_args_is_help=True, help="Where a group stands in its queues.")

_COLUMNS = ("topic", "queue", "begin", "base", "committed", "end", "lag", "state", "owner")
_PLAN = (
    *("topic", "queue", "from", "to", "skipped", "repeated", "leases_ended"),
    "parked_keys_kept",
)
#: A take-over may be under way, or a lock may have to run out.
_TIMEOUT_S = 30.0

Topic = Annotated[str | None, typer.Option(help="a topic (default: all of the group)")]


@app.command("show")
def show(
    group: str,
    topic: Topic = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show begin and end of each queue, the base (the next offset that the group needs) and what of
    it is committed, whichever proxy owns it.
    """
    found = look(http, path_of("groups", group, "offsets"), topic=topic)
    print_rows(found["queues"], columns=_COLUMNS, output=output)


@app.command("reset")
def reset(
    group: str,
    reason: ReasonOption,
    topic: Topic = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="a queue (default: all); may be repeated")
    ] = None,
    to_offset: Annotated[int | None, typer.Option(min=0, help="go on with this offset")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(help="with the first message stored then, as 2026-01-01T00:00:00Z"),
    ] = None,
    skip: Annotated[bool, typer.Option("--skip", help="with what comes from now on")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be")] = False,
    expect: Annotated[
        list[str] | None,
        typer.Option(help="only if the base is this: 812, or broker-a_0=812; may be repeated"),
    ] = None,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Have a group go on elsewhere in its queues: messages in between are skipped, or come again.

    What clients have of it is void: their verdicts count no more. Parked keys stay parked. All
    queues are looked at first, and nothing is done if one of them cannot be moved.
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
            raise OrderlaneError(f"{error}; {len(done)} of {len(rows)} queues are moved") from None
        raise
    print_rows(done, columns=_PLAN, output=output)
    say(f"{group} goes on there in {len(done)} queues")


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
        raise OrderlaneError("say where to by one of --to-offset, --to-time and --skip")
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
            f"--to-time {time!r} should be a time with its zone, such as 2026-01-01T00:00:00Z"
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
                f"--expect {each!r} should be the base of one queue: 812 with a single --queue, or"
                " broker-a_0=812 with a single --topic"
            )
        expected[meant[0]["topic"], meant[0]["queue"]] = int(number)
    return expected
