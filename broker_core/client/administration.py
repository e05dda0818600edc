"""Administrative requests to a broker: create a topic, read its start time and log range."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from broker_core.client.requests import BrokerRequests
from broker_core.client.results import ElectedReplicas, LogSpan
from broker_core.client.routes import RouteCache
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, ConnectionLost, RequestTimeout
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting import admin_bodies, bodies, headers
from broker_core.remoting.admin_headers import StatsHeader, TopicOnlyHeader
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
from broker_core.remoting.route_bodies import QueueData

_ROUTE_WAIT_S = 10.0
_ROUTE_LOOK_S = 0.05
#: Figures of an embedded broker's retention; others do not report them.
RETENTION_FIGURES = (
    *("retentionClockAheadMillis", "retentionUnreadExpiring", "retentionUnreadDeleted"),
)
_BOOT = "bootTimestamp"


async def create_topic(
    requests: BrokerRequests,
    routes: RouteCache,
    topic: Topic,
    *,
    queues: int,
    broker: str | None,
    perm: int,
) -> None:
    """Create or change *topic* at *broker*, or at all; return once its route shows it.

    Raises RequestTimeout if the route does not show it within 10 s.
    """
    brokers = [broker] if broker else sorted((await routes.clusters()).brokers)
    if not brokers:
        raise ConnectionLost(f"topic {topic} was not created: no broker is registered")
    wanted = [
        QueueData(broker=name, read_queues=queues, write_queues=queues, perm=perm)
        for name in brokers
    ]
    await define_topic(requests, routes, topic, wanted)


async def define_topic(
    requests: BrokerRequests, routes: RouteCache, topic: Topic, wanted: Sequence[QueueData]
) -> None:
    """Create or change *topic* at each broker of *wanted*; return once its route shows it.

    Raises RequestTimeout if the route does not show it within 10 s.
    """
    for each in wanted:
        header = headers.CreateTopicHeader(
            topic=topic,
            read_queue_nums=each.read_queues,
            write_queue_nums=each.write_queues,
            perm=each.perm,
            topic_sys_flag=each.sys_flag or None,
        )
        await requests.ask(each.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_ext())
    deadline_ns = now_ns() + int(_ROUTE_WAIT_S * 1e9)
    while not await _shows(routes, topic, wanted):
        if now_ns() > deadline_ns:
            raise RequestTimeout(
                f"topic {topic} was changed, but its route does not show it after"
                f" {_ROUTE_WAIT_S:g} s"
            )
        await asyncio.sleep(_ROUTE_LOOK_S)


async def _shows(routes: RouteCache, topic: Topic, wanted: Iterable[QueueData]) -> bool:
    try:
        route = await routes.route(topic, fresh=True)
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return False
        raise
    shown = {(each.broker, each.read_queues, each.write_queues) for each in route.queues}
    return shown.issuperset((each.broker, each.read_queues, each.write_queues) for each in wanted)


async def broker_start_ms(requests: BrokerRequests, broker: str) -> int:
    """Return the start time of *broker*, ms since 1970."""
    return _number(await _runtime(requests, broker), _BOOT)


async def locks_since_ms(requests: BrokerRequests, broker: str) -> int:
    """Return since when *broker* has forgotten no orderly lock, ms since 1970.

    An embedded broker keeps its locks over a restart. Others are taken to forget them.
    """
    table = await _runtime(requests, broker)
    return _number(table, "lockTableTimestamp" if "lockTableTimestamp" in table else _BOOT)


async def elected_replicas(requests: BrokerRequests, broker: str) -> ElectedReplicas | None:
    """Return the replicas of *broker*, None if they do not elect their master."""
    return _elected(await _runtime(requests, broker))


def _elected(table: Mapping[str, str]) -> ElectedReplicas | None:
    if "voters" not in table:
        return None
    return ElectedReplicas(
        master=_number(table, "masterId"),
        epoch=_number(table, "masterEpoch"),
        in_sync=_ids(table.get("inSyncReplicas", "")),
        voters=_ids(table["voters"]),
    )


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each.isdecimal())


async def confirm_clock(requests: BrokerRequests, broker: str, *, by: str, reason: str) -> int:
    """Let messages at *broker* grow old by its wall clock; return by how many ms it was ahead."""
    answer = await requests.ask(broker, RequestCode.CONFIRM_CLOCK, {"by": by, "reason": reason})
    return int(answer.ext.get("aheadMillis", "0"))


async def runtime(requests: BrokerRequests, broker: str) -> dict[str, str]:
    """Return the figures that *broker* reports of itself, by name."""
    return await _runtime(requests, broker)


async def log_span(requests: BrokerRequests, broker: str) -> LogSpan:
    """Return the range of the log that *broker* keeps."""
    table = await _runtime(requests, broker)
    return LogSpan(
        begin=_number(table, "commitLogMinOffset"),
        end=_number(table, "commitLogMaxOffset"),
        retention={name: int(table[name]) for name in RETENTION_FIGURES if name in table},
        replicas=_elected(table),
    )


async def broker_settings(requests: BrokerRequests, broker: str) -> dict[str, str]:
    """Return the settings that *broker* shows, under RocketMQ's names."""
    answer = await requests.ask(broker, RequestCode.GET_BROKER_CONFIG)
    lines = bytes(answer.body).decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


async def log_file_bytes(requests: BrokerRequests, broker: str) -> int | None:
    """Return the length of a log file of *broker*, or None if it does not report it."""
    length = (await broker_settings(requests, broker)).get("mappedFileSizeCommitLog", "")
    return int(length) or None if length.isdecimal() else None


async def consumers_at(requests: BrokerRequests, broker: str, topic: Topic) -> list[Group]:
    """Return the groups that consume *topic* at *broker*, or have committed offsets there."""
    header = TopicOnlyHeader(topic=topic).to_ext()
    answer = await requests.ask(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
    return admin_bodies.group_list_from_json(answer.body)


async def put_rate(requests: BrokerRequests, broker: str, topic: Topic) -> float | None:
    """Return the messages per second that *broker* stored in *topic* in the last minute, None if it
    has no figures, as before the first message after its start.
    """
    header = StatsHeader(stats_name="TOPIC_PUT_NUMS", stats_key=topic).to_ext()
    try:
        answer = await requests.ask(broker, RequestCode.VIEW_BROKER_STATS_DATA, header)
    except BrokerError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        return None
    return admin_bodies.minute_rate_from_json(answer.body)


async def _runtime(requests: BrokerRequests, broker: str) -> dict[str, str]:
    answer = await requests.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
    return bodies.table_from_json(answer.body)


def _number(table: Mapping[str, str], name: str) -> int:
    if not (text := table.get(name, "")).isdecimal():
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"{name} is {text!r}: expected a number",
            request=request_name(RequestCode.GET_BROKER_RUNTIME_INFO),
        )
    return int(text)


async def stores_offset(requests: BrokerRequests, group: Group, queue: QueueName) -> bool:
    """Return whether offset 0, which the broker returned for *group*, is a committed one."""
    answer = await requests.ask(queue.broker, RequestCode.GET_ALL_CONSUMER_OFFSET)
    return queue.queue_id in bodies.committed_queues_from_json(answer.body, group, queue.topic)
