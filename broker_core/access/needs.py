"""The rights that a request needs. Pure.

As in RocketMQ 4.9, and stricter where that requires none: for batches, locks, offsets and the codes
that define, delete or reset something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Flag
from typing import NamedTuple

from broker_core.names import RETRY_PREFIX, Group, Topic
from broker_core.remoting.bodies import Heartbeat, LockBatch
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.lock_renewal import lock_names_from_json

_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


class Right(Flag):
    """Rights of an account to a topic or a group."""

    NONE = 0
    PUB = 1
    SUB = 2


class Need(NamedTuple):
    """A right to a topic or a group."""

    kind: str  # "topic" or "group"
    name: str
    right: Right

    @property
    def is_internal(self) -> bool:
        """Whether it is a topic of the gateway or of dead letters, which has to be named."""
        return self.kind == "topic" and self.name.startswith("%")


#: Requests for administrators only: they change or show what all accounts share.
ADMIN_CODES = frozenset(
    {
        *(17, 18, 25, 200, 207, 215, 222, 225, 314, 329),
        33,  # 33, a message by its position, of any topic
        323,  # checks a transaction again
        *(100, 102, 103, 104, 205, 216, 322, 327),  # at a nameserver: values, brokers, topics
        RequestCode.JOIN_MASTER,
        *(RequestCode.FETCH_LOG, RequestCode.FETCH_TABLES),  # the whole log, and all tables
        *(RequestCode.REQUEST_VOTE, RequestCode.MASTER_BEAT),  # who is master
        RequestCode.CONFIRM_CLOCK,  # may expire messages
    }
)


def needs_of(request: RemotingCommand) -> list[Need]:
    """Return the rights that *request* needs. Raise InvalidCommand if its body is invalid."""
    find = _NEEDS.get(request.code)
    return [] if find is None else find(request)


def reading_needs(group: Group, topic: Topic) -> list[Need]:
    """Return the rights that a read of *topic* for *group* needs."""
    return [_topic(topic, Right.SUB), _group(group)]


def committing_needs(group: Group, topic: Topic) -> list[Need]:
    """Return the rights that a commit for *group* in *topic* needs."""
    return reading_needs(group, topic)


def sending_needs(topic: Topic) -> list[Need]:
    """Return the rights that a send to *topic* needs."""
    # Tracing clients send there for all their topics, so it needs no right, as at Apache's brokers.
    return [] if topic == _TRACE_TOPIC else [_topic(topic, Right.PUB)]


def _topic(name: str, right: Right) -> Need:
    """Return a right to a topic; retry topics of a group belong to the group."""
    if name.startswith(RETRY_PREFIX):
        return Need("group", name.removeprefix(RETRY_PREFIX), Right.SUB)
    return Need("topic", name, right)


def _group(name: str) -> Need:
    return Need("group", name, Right.SUB)


def _publishing(field: str) -> Callable[[RemotingCommand], list[Need]]:
    def find(request: RemotingCommand) -> list[Need]:
        return sending_needs(Topic(request.ext.get(field, "")))

    return find


def _consuming(
    *, topic: str | None = None, group: str | None = None
) -> Callable[[RemotingCommand], list[Need]]:
    def find(request: RemotingCommand) -> list[Need]:
        ext: Mapping[str, str] = request.ext
        needs = [] if topic is None else [_topic(ext.get(topic, ""), Right.SUB)]
        return needs if group is None else [*needs, _group(ext.get(group, ""))]

    return find


def _unregister(request: RemotingCommand) -> list[Need]:
    group = request.ext.get("consumerGroup")
    return [_group(group)] if group else []


def _heartbeat(request: RemotingCommand) -> list[Need]:
    needs = []
    for consumer in Heartbeat.from_json(request.body).consumers:
        needs.append(_group(consumer.group))
        needs += [_topic(each.topic, Right.SUB) for each in consumer.subscriptions]
    return needs


def _locks(request: RemotingCommand) -> list[Need]:
    batch = LockBatch.from_json(request.body)
    topics = {queue.topic for queue in batch.queues}
    return [_group(batch.group), *(_topic(topic, Right.SUB) for topic in sorted(topics))]


def _renewals(request: RemotingCommand) -> list[Need]:
    names = lock_names_from_json(request.body)
    return [
        *(_group(group) for group in sorted({group for group, _, _ in names})),
        *(_topic(topic, Right.SUB) for topic in sorted({topic for _, topic, _ in names})),
    ]


def _ending(request: RemotingCommand) -> list[Need]:
    """Return the right to the topic, which 5.x names.

    The topic of the half message itself is checked when it is read.
    """
    topic = request.ext.get("topic")
    return [_topic(topic, Right.PUB)] if topic else []


def _ranges(request: RemotingCommand) -> list[Need]:
    """As those of codes 30 and 31, which need none, unless committed offsets are asked for."""
    return _BOTH(request) if "consumerGroup" in request.ext else []


_BOTH = _consuming(topic="topic", group="consumerGroup")
_NEEDS: Mapping[int, Callable[[RemotingCommand], list[Need]]] = {
    RequestCode.SEND_MESSAGE: _publishing("topic"),
    RequestCode.SEND_MESSAGE_V2: _publishing("b"),
    RequestCode.SEND_BATCH_MESSAGE: _publishing("b"),
    RequestCode.END_TRANSACTION: _ending,
    370: _publishing("topic"),  # recalls a delayed message
    RequestCode.PULL_MESSAGE: _BOTH,
    RequestCode.LITE_PULL_MESSAGE: _BOTH,
    RequestCode.QUERY_CONSUMER_OFFSET: _BOTH,
    RequestCode.UPDATE_CONSUMER_OFFSET: _BOTH,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _consuming(group="consumerGroup"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.RENEW_LOCKS: _renewals,
    RequestCode.READ_RANGES: _ranges,
    # READ_QUEUES, COMMIT_OFFSETS and SEND_MESSAGES: checked for each queue, so that a refusal
    # concerns no other queue.
    36: _consuming(group="group"),  # sends a message back, whose topic is checked when it is read
    12: _consuming(topic="topic"),  # messages by key
}
