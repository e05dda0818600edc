"""``orderlane lag``: the lag of a group, queue by queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any

import typer

from broker_core.client import BrokerClient, QueueRange
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from proxy.cli.connect import broker_client, in_words, proxy_groups
from proxy.cli.known_figures import age, known_queues
from proxy.cli.options import (
    DEFAULT_HTTP,
    DEFAULT_NAMESERVER,
    GroupArgument,
    HttpOption,
    NameserverOption,
)
from proxy.cli.output import Output, OutputFormat, print_rows, say
from proxy.diagnosis.findings import some
from proxy.errors import OrderlaneError
from proxy.upstream.broker_questions import BrokerQuestions

_COLUMNS = (
    *("topic", "queue", "owned", "end", "committed", "lag", "position", "unfinished", "blocked"),
    *("parked", "age", "leased", "epoch"),
)
#: Null in these columns is shown as "unknown".
_UNKNOWN = ("owned", "end", "lag", "unfinished", "blocked", "parked")
#: Figures that only a proxy knows.
_OF_PROXIES = ("owned", "unfinished", "blocked", "parked", "at_ms", "oldest_ms", "trouble")
#: Figures that brokers tell, and proxies knew.
_OF_BROKERS = ("end", "committed", "lag")
#: Stands for a group if no proxy answers.
_NOTHING: dict[str, Any] = {"topics": [], "queues": [], "others": [], "paused": None}


def lag(
    group: GroupArgument,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="topic, repeatable (default: all that the proxy lists)"),
    ] = None,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
    http: HttpOption = DEFAULT_HTTP,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show end offset, committed offset and lag of each queue of a group.

    Lag counts messages that are not committed, "unfinished" those read but not finished, "blocked"
    those waiting behind another message of their key, "parked" their copies in the parked topic.
    "owned" is here, elsewhere (ask that proxy), gone or free: figures of a queue without an owner
    come from its last records, and "age" says how old they are.
    """
    known = _held(group, http, needed=not topic)
    names = topic or [each["name"] for each in known["topics"]]
    for each in _restrictions(group, known):
        say(each)
    queues = [each for each in known_queues([known]) if each["topic"] in names]
    try:
        rows, unanswered = asyncio.run(_rows(group, names, nameserver, queues))
    except OrderlaneError as error:
        if not queues:
            raise
        say(f"showing the last figures of the proxy: {error}")
        rows, unanswered = [{**dict.fromkeys(_OF_PROXIES), **each} for each in queues], {}
    shown = rows if output is OutputFormat.JSON else _with_age(rows)
    print_rows(shown, columns=_COLUMNS, output=output, unknown=_UNKNOWN)
    for broker, why in unanswered.items():
        shown_for_it = ", its figures are the last ones of the proxy" if queues else ""
        say(f"{broker} did not answer{shown_for_it}: {why}")
    for trouble in sorted({row["trouble"] for row in rows if row["trouble"]}):
        places = [f"{row['topic']}/{row['queue']}" for row in rows if row["trouble"] == trouble]
        say(f"figures of {some(places)} are not newer: {trouble}")


def _with_age(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    now_ms = wall_ms()
    return [{**row, "age": age(row, now_ms)} for row in rows]


def _held(group: str, http: str, *, needed: bool) -> dict[str, Any]:
    """Return the proxy's view of the group; empty if it does not answer and is not *needed*."""
    try:
        groups = proxy_groups(http)
    except OrderlaneError as error:
        if needed:
            raise
        say(f"showing offsets only: {error}")
        return dict(_NOTHING)
    if group not in groups and needed:
        known = ", ".join(sorted(groups)) or "none"
        raise OrderlaneError(f"there is no group {group!r} at {http}; known groups: {known}")
    return dict(groups.get(group, _NOTHING))


async def _rows(
    group: str, topics: list[str], nameserver: str, held: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a row for each queue, with what the proxy knows if its broker does not answer; and the
    errors of such brokers. Raises OrderlaneError if no broker answers.
    """
    by_queue = {(queue["topic"], queue["queue"]): queue for queue in held}
    unknown = dict.fromkeys(_OF_PROXIES)
    ask = BrokerQuestions(in_words)
    async with broker_client(nameserver) as client:
        queues = [queue for topic in topics for queue in await _queues(client, topic)]
        answers = await ask.ask_each(queues, partial(client.queue_ranges, group=Group(group)))
    ask.refuse_if_silent({queue.broker for queue in queues})
    ranges = {queue: each for answer in answers for queue, each in answer.items()}
    rows = [
        {
            **unknown,
            **dict.fromkeys(_OF_BROKERS),
            **by_queue.get((queue.topic, queue.qid), {}),
            **_offsets(queue, ranges.get(queue)),
        }
        for queue in queues
    ]
    return rows, ask.unanswered


async def _queues(client: BrokerClient, topic: str) -> list[QueueName]:
    try:
        return await client.queues(Topic(topic))
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        raise OrderlaneError(f"there is no topic {topic!r}: see orderlane topics") from None


def _offsets(queue: QueueName, found: QueueRange | None) -> dict[str, Any]:
    if found is None:
        return {"topic": queue.topic, "queue": queue.qid}
    start = found.begin if found.committed is None else found.committed
    return {
        "topic": queue.topic,
        "queue": queue.qid,
        "end": found.end,
        "committed": found.committed,
        "lag": max(0, found.end - start),
    }


def _restrictions(name: str, group: dict[str, Any]) -> Iterator[str]:
    """Yield intended restrictions: a pause, a recreated topic, rate limits."""
    if (pause := group["paused"]) is not None:
        yield (
            f"group {name}: paused by {pause['by']} ({pause['reason']}); resume it with orderlane"
            " groups resume"
        )
    yield from _recreated(group["queues"])
    yield from _limited(name, group)


def _limited(name: str, group: dict[str, Any]) -> Iterator[str]:
    """Yield topics whose ready messages wait for a rate limit."""
    for topic in group["topics"]:
        if topic["rate_limited"]:
            rates = (topic["max_rate"], group["max_rate"])
            rate = min(each for each in rates if each is not None)
            yield (
                f"group {name}: ready messages of {topic['name']} are rate limited (max_rate:"
                f" {rate:g} messages/s over all proxies)"
            )


def _recreated(queues: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield queues whose topic was deleted and recreated since the previous owner."""
    for queue in queues:
        if queue.get("recreated"):
            yield (
                f"{queue['topic']}/{queue['queue']}: the topic was deleted and created again;"
                " the group started at its first message"
            )
