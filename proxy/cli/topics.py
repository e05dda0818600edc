"""``orderlane topics``: list, describe, create, update and delete topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
import typer

from broker_core.client import QueueRange
from broker_core.errors import BrokerError, NotRegistered
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from proxy.cli.confirmation import Yes, confirm, may_ask
from proxy.cli.connect import (
    CHANGE_TIMEOUT_S,
    actor,
    ask_proxy,
    body_of,
    broker_client,
    given_reason,
    in_words,
)
from proxy.cli.options import DEFAULT_HTTP, DEFAULT_NAMESERVER, HttpOption, NameserverOption
from proxy.cli.output import Output, OutputFormat, print_json, print_preview, print_rows, say
from proxy.cli.owner_requests import look, path_of, say_unanswered
from proxy.diagnosis.findings import number
from proxy.upstream.broker_questions import BrokerQuestions

app = typer.Typer(
    invoke_without_command=True, help="List, describe, create, update and delete topics."
)

#: Internal topics: ownership records, and the template of new topics.
_INTERNAL = ("%OWN%", "TBW102")
_COLUMNS = ("topic", "brokers", "queues", "messages")
_QUEUES = ("queue", "begin", "end", "messages")
_BROKERS = ("broker", "read_queues", "write_queues", "perm", "put_rate", "retention_hours")
_GROUPS = ("group", "lag")
_CREATED = ("topic", "queues", "perm", "broker", "dry_run")
_UPDATED = ("broker", "read_queues", "write_queues", "perm", "dry_run")
_DELETED = ("topic", "messages", "groups", "dry_run")

TopicArgument = Annotated[str, typer.Argument(help="topic")]
Everything = Annotated[
    bool, typer.Option("--all", help="include internal topics of proxies and brokers")
]
Reason = Annotated[
    str | None, typer.Option(help="reason, stored in the audit topic; not needed to dry-run")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="show the effect, change nothing")]


@app.callback()
def topics(
    context: typer.Context,
    everything: Everything = False,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List topics if no verb is given."""
    if context.invoked_subcommand is None:
        ls(everything=everything, nameserver=nameserver, output=output)


@app.command("ls")
def ls(
    everything: Everything = False,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List topics with their brokers, queues and messages."""
    rows, unanswered = asyncio.run(_rows(nameserver, everything=everything))
    print_rows(rows, columns=_COLUMNS, output=output, unknown=_COLUMNS)
    say_unanswered({"unanswered": unanswered})


@app.command("describe")
def describe(
    topic: TopicArgument,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show a topic: its queues, its brokers with permissions, rate and retention, its groups.

    "put_rate" is messages per second in the last minute, "lag" messages not committed by a group;
    "-" means unknown.
    """
    found: dict[str, Any] = look(http, path_of("topics", topic))
    if output is OutputFormat.JSON:
        print_json(found)
        return
    print_rows([_with_messages(row) for row in found["queue_list"]], columns=_QUEUES, output=output)
    say("")
    print_rows(found["broker_list"], columns=_BROKERS, output=output)
    say("")
    print_rows(found["groups"], columns=_GROUPS, output=output)
    say_unanswered(found)
    if not found["complete"]:
        say("the figures are incomplete: a broker did not answer, or there are too many")


@app.command("create")
def create(
    topic: TopicArgument,
    queues: Annotated[int, typer.Option(min=1, help="queues at each broker")] = 8,
    perm: Annotated[str, typer.Option(help="what clients may do: RW, R or W")] = "RW",
    broker: Annotated[str | None, typer.Option(help="name of a broker (default: all)")] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a topic at all brokers, or at one."""
    asked: dict[str, Any] = {"queues": queues, "perm": perm, "dry_run": dry_run, "by": actor()}
    if broker is not None:
        asked["broker"] = broker
    body = body_of({**asked, **given_reason(reason, dry_run)})
    path = path_of("topics", topic)
    answer = ask_proxy(http, path, body=body, timeout_s=CHANGE_TIMEOUT_S, method="PUT")
    print_rows([orjson.loads(answer)], columns=_CREATED, output=output)


@app.command("update")
def update(
    topic: TopicArgument,
    queues: Annotated[
        int | None, typer.Option(min=1, help="queues at each broker, not less than there are")
    ] = None,
    perm: Annotated[str | None, typer.Option(help="what clients may do: RW, R or W")] = None,
    broker: Annotated[
        str | None, typer.Option(help="name of a broker (default: all that have the topic)")
    ] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Change the permissions of a topic, or add queues.

    With permission to read, all queues that are written can be read. A message with a key may go to
    another queue once there are more: add queues while no message waits.
    """
    given = {"queues": queues, "perm": perm, "broker": broker}
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    body = body_of({**asked, "dry_run": dry_run, "by": actor(), **given_reason(reason, dry_run)})
    answer = ask_proxy(http, path_of("topics", topic), body=body, timeout_s=CHANGE_TIMEOUT_S)
    found = orjson.loads(answer)
    rows = [{**row, "dry_run": found["dry_run"]} for row in found["brokers"]]
    print_rows(rows, columns=_UPDATED, output=output)


@app.command("delete")
def delete(
    topic: TopicArgument,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete a topic with all its messages at all brokers.

    It shows the messages that are lost and the groups that consume them, and asks.
    """
    if not dry_run:
        may_ask(yes)
    plan = _deletion(http, topic, given_reason(reason, True), dry_run=True)
    if dry_run:
        print_rows([_deleted(plan)], columns=_DELETED, output=output)
        return
    if not yes:
        print_preview([_deleted(plan)], columns=_DELETED)
    lost = "messages" if plan["messages"] is None else number(plan["messages"], "message")
    confirm(f"delete topic {topic} with {lost}?", yes=yes)
    done = _deletion(http, topic, given_reason(reason, False))
    print_rows([_deleted(done)], columns=_DELETED, output=output)


def _deletion(
    http: str, topic: str, why: dict[str, str], *, dry_run: bool = False
) -> dict[str, Any]:
    asked = {"by": actor(), "dry_run": "true" if dry_run else "false", **why}
    path = f"{path_of('topics', topic)}?{urlencode(asked)}"
    answer = ask_proxy(http, path, timeout_s=CHANGE_TIMEOUT_S, method="DELETE")
    return dict(orjson.loads(answer))


def _deleted(row: dict[str, Any]) -> dict[str, Any]:
    lags = (
        f"{group} (lag {'unknown' if lag is None else lag})" for group, lag in row["groups"].items()
    )
    return {**row, "groups": ", ".join(lags) or None}


def _with_messages(row: dict[str, Any]) -> dict[str, Any]:
    begin, end = row["begin"], row["end"]
    return {**row, "messages": None if begin is None or end is None else end - begin}


async def _rows(
    nameserver: str, *, everything: bool
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a row for each topic, with None for what its brokers do not tell; and the errors of
    brokers.
    """
    ask = BrokerQuestions(in_words)
    queues: dict[Topic, list[QueueName] | None] = {}
    async with broker_client(nameserver) as client:
        for topic in sorted(await client.topics()):
            if topic.startswith(_INTERNAL) and not everything:
                continue
            try:
                queues[topic] = await client.queues(topic)
            except NotRegistered as error:
                queues[topic] = None
                ask.note(f"the brokers of {topic}", error)
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise  # else deleted in the meantime
        answers = await asyncio.gather(
            *(ask.ask_each(known or (), client.queue_ranges) for known in queues.values())
        )
    rows = [
        _row(topic, known, {queue: each for part in parts for queue, each in part.items()})
        for (topic, known), parts in zip(queues.items(), answers, strict=True)
    ]
    return rows, ask.unanswered


def _row(
    topic: Topic, queues: list[QueueName] | None, ranges: Mapping[QueueName, QueueRange]
) -> dict[str, Any]:
    if queues is None:
        return {"topic": topic, "brokers": None, "queues": None, "messages": None}
    messages = sum(each.end - each.begin for each in ranges.values())
    return {
        "topic": topic,
        "brokers": ",".join(sorted({queue.broker for queue in queues})),
        "queues": len(queues),
        "messages": messages if len(ranges) == len(queues) else None,
    }
