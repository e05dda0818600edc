"""``orderlane offsets``: show and reset the offsets of a group, skip damaged messages."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from proxy.cli.confirmation import Yes, confirm, may_ask
from proxy.cli.options import DEFAULT_HTTP, GroupArgument, HttpOption
from proxy.cli.output import Output, OutputFormat, print_preview, print_rows, say
from proxy.cli.owner_requests import ReasonOption, change, look, path_of, say_unanswered
from proxy.cli.times import given_ms
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from proxy.upstream.broker_questions import failures

app = typer.Typer(
    no_args_is_help=True, help="Show and reset a group's offsets, skip damaged messages."
)

_COLUMNS = ("topic", "queue", "begin", "base", "committed", "end", "lag", "state", "owner")
_PLAN = (
    *("topic", "queue", "from", "to", "skipped", "repeated", "leases_ended"),
    "parked_keys_kept",
)
_BY_TOPIC = ("topic", "queues", "skipped", "repeated", "leases_ended", "parked_keys_kept")
_SKIPPED = ("topic", "queue", "offset", "skipped")
#: Covers a take-over in progress, or a lock that must expire first.
_TIMEOUT_S = 30.0
#: Interval of reports on stderr.
_REPORT_S = 5.0

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
    say_unanswered(found)


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
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="continue at the oldest message still stored")
    ] = False,
    skip: Annotated[
        bool,
        typer.Option("--skip", "--to-latest", help="continue at the end, skipping all messages"),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the effect without resetting")
    ] = False,
    expect: Annotated[
        list[str] | None,
        typer.Option(help="reset only from this base: 812 or broker-a_0=812; repeatable"),
    ] = None,
    yes: Yes = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Reset the offsets of a group: skip messages, or deliver them again.

    Without --topic and --queue in all queues of all its topics. Leases on these queues end, and
    their verdicts are ignored. Parked keys stay parked. All queues are checked first; if one cannot
    be reset, none is. The effect on each topic is shown before the question.
    """
    to = _to(to_offset, to_time, begin=to_earliest, end=skip)
    if not dry_run:
        may_ask(yes)
    found = look(http, path_of("groups", group, "offsets"), topic=topic)
    if not queue and (missing := found.get("unanswered")):
        raise OrderlaneError(
            "not all queues can be reset now, and without --queue all or none are:"
            f" {failures(missing)}"
        )
    rows = _chosen(found["queues"], queue)
    expected = _expected(expect or [], rows)
    plans = [
        _ask(http, group, row, reason=reason, to=to, dry_run=True, expected=expected)
        for row in rows
    ]
    if dry_run:
        print_rows(plans, columns=_PLAN, output=output)
        return
    if not yes:
        totals = _by_topic(plans)
        print_preview(totals, columns=_BY_TOPIC)
        skipped, repeated = (sum(row[name] for row in totals) for name in ("skipped", "repeated"))
        confirm(
            f"reset {number(len(rows), 'queue')} of {group}: skip up to {skipped:,} messages and"
            f" deliver up to {repeated:,} again?",
            yes=yes,
        )
    done: list[Any] = []
    reported = time.monotonic()
    try:
        for row in rows:
            done.append(_ask(http, group, row, reason=reason, to=to, expected=expected))
            if time.monotonic() - reported >= _REPORT_S:
                reported = time.monotonic()
                say(f"{len(done)} of {number(len(rows), 'queue')} reset so far")
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


def _to(offset: int | None, when: str | None, *, begin: bool, end: bool) -> dict[str, Any]:
    if (offset is not None) + (when is not None) + begin + end != 1:
        raise OrderlaneError(
            "give exactly one of --to-offset, --to-time, --to-earliest and --skip (--to-latest)"
        )
    if offset is not None:
        return {"offset": offset}
    if when is not None:
        return {"time_ms": given_ms(when, option="--to-time")}
    return {"begin": True} if begin else {"end": True}


def _by_topic(plans: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums of *plans*, one of each queue, by topic."""
    topics: defaultdict[str, dict[str, Any]] = defaultdict(lambda: dict.fromkeys(_BY_TOPIC[1:], 0))
    for plan in plans:
        sums = topics[plan["topic"]]
        sums["queues"] += 1
        for name in _BY_TOPIC[2:]:
            sums[name] += plan[name]
    return [{"topic": topic, **sums} for topic, sums in sorted(topics.items())]


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
