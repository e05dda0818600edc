"""``orderlane retention``: what brokers are about to delete, and the clock by which they do so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from broker_core.client import BrokerClient
from proxy.cli.connect import actor, broker_client, in_words
from proxy.cli.options import DEFAULT_NAMESERVER, NameserverOption
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.cli.owner_requests import say_unanswered
from proxy.errors import OrderlaneError
from proxy.upstream.broker_questions import BrokerQuestions

ReasonOption = Annotated[str, typer.Option("--reason", help="reason, recorded by the broker")]

_COLUMNS = ("broker", "clock", "ahead_s", "unread_expiring", "unread_deleted")

app = typer.Typer(
    no_args_is_help=True, help="Show what brokers are about to delete; confirm a broker's clock."
)


@app.command()
def show(
    nameserver: NameserverOption = DEFAULT_NAMESERVER, output: Output = OutputFormat.TABLE
) -> None:
    """Show each broker's clock, and messages that its retention deletes before a group reads them.

    "unread_expiring" counts messages past 80 % of the retention that a group has not read,
    "unread_deleted" those deleted since the broker's start.
    """
    rows, unanswered = asyncio.run(_rows(nameserver))
    print_rows(rows, columns=_COLUMNS, output=output)
    say_unanswered({"unanswered": unanswered})


@app.command("confirm-clock")
def confirm_clock(
    broker: Annotated[str, typer.Argument(help="name of the broker")],
    reason: ReasonOption,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
) -> None:
    """Let messages grow old by the broker's wall clock again, after it jumped ahead.

    Confirm only if the clock is right: messages that are too old by it are deleted within a minute.
    The broker records who confirmed it, when and why.
    """
    ahead_ms = asyncio.run(_confirm(nameserver, broker, by=actor(), reason=reason))
    say(f"the clock of {broker} is confirmed: it was {ahead_ms / 1000:.0f} s ahead")


async def _rows(nameserver: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a row for each broker, and the errors of those that did not answer."""
    ask = BrokerQuestions(in_words)
    async with broker_client(nameserver) as client:
        brokers = await client.all_brokers()
        answers = await asyncio.gather(
            *(ask.ask(broker, partial(client.runtime, broker)) for broker in brokers)
        )
    rows = [_row(broker, told or {}) for broker, told in zip(brokers, answers, strict=True)]
    return rows, ask.unanswered


def _row(broker: str, figures: Mapping[str, str]) -> dict[str, Any]:
    ahead_ms = figures.get("retentionClockAheadMillis")
    return {
        "broker": broker,
        "clock": "unknown" if ahead_ms is None else "ahead" if int(ahead_ms) else "ok",
        "ahead_s": None if ahead_ms is None else int(ahead_ms) // 1000,
        "unread_expiring": _number(figures, "retentionUnreadExpiring"),
        "unread_deleted": _number(figures, "retentionUnreadDeleted"),
    }


def _number(figures: Mapping[str, str], name: str) -> int | None:
    return int(figures[name]) if name in figures else None


async def retention_problems(client: BrokerClient, brokers: list[str]) -> list[str]:
    """Return what an operator should know of the retention of *brokers*, in sentences."""
    found = []
    for row in [_row(broker, await client.runtime(broker)) for broker in brokers]:
        broker = row["broker"]
        if row["ahead_s"]:
            found.append(
                f"the clock of {broker} jumped {row['ahead_s']} s ahead, so messages do not grow"
                f" old by it: correct it, or run orderlane retention confirm-clock {broker}"
            )
        if row["unread_expiring"]:
            found.append(
                f"{broker} is about to delete {row['unread_expiring']} messages that a group has"
                " not read: consume them, or raise retention_hours or retention_bytes"
            )
        if row["unread_deleted"]:
            found.append(
                f"{broker} has deleted {row['unread_deleted']} messages since its start that a"
                " group had not read: its log names the groups"
            )
    return found


async def _confirm(nameserver: str, broker: str, *, by: str, reason: str) -> int:
    async with broker_client(nameserver) as client:
        known = await client.all_brokers()
        if broker not in known:
            raise OrderlaneError(
                f"no broker {broker!r} is registered; registered: {', '.join(known) or 'none'}"
            )
        return await client.confirm_clock(broker, by=by, reason=reason)
