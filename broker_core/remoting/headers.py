"""The custom headers of requests and responses, one dataclass each. Pure.

On the wire a header is ``extFields``: Java's field names, all values as text, absent if null. Names
here are Java's in snake case; ``to_ext`` and ``from_ext`` convert. Unknown fields are ignored, as
in RocketMQ. Source: the ``*Header`` classes in ``org.apache.rocketmq.common.protocol.header``
(4.9.8) and ``remoting.protocol.header`` (5.3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self

from broker_core.errors import InvalidCommand
from broker_core.remoting.header_fields import (
    Header,
    HeaderField,
    Int32,
    fields_of,
    from_ext_of,
    read_int32,
    read_int64,
    to_ext_of,
)

#: RocketMQ's template of topics that are created by sends.
MODEL_TOPIC = "TBW102"

#: Extension of codes 10, 310 and 320: the life of the topic that the sender knows.
LIFE = "life"

_TRUTHS = {None: None, "true": True, "false": False}


@dataclass(slots=True, kw_only=True)  # not frozen: that would take a microsecond more per object
class SendMessageHeader(Header):
    """Codes 10, 310 and 320. ``properties`` is the text form of ``message.py``.

    ``queue_id`` below 0 lets the broker choose; times are in milliseconds since 1970.
    """

    producer_group: str
    topic: str
    default_topic: str = MODEL_TOPIC
    default_topic_queue_nums: Int32 = 4
    queue_id: Int32
    sys_flag: Int32 = 0
    born_timestamp: int
    flag: Int32 = 0
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None

    def to_v2(self) -> dict[str, str]:
        """Return the form of codes 310 and 320, with one-letter names."""
        return to_ext_of(self, v2_fields())

    @classmethod
    def from_v2(cls, ext: Mapping[str, str]) -> Self:
        """Read the form of codes 310 and 320. Raise as ``from_ext``."""
        of, times, most = ext.get, ext.get("j"), ext.get("l")
        try:
            return cls(
                producer_group=ext["a"],
                topic=ext["b"],
                default_topic=of("c", MODEL_TOPIC),
                default_topic_queue_nums=read_int32(of("d", "4")),
                queue_id=read_int32(ext["e"]),
                sys_flag=read_int32(of("f", "0")),
                born_timestamp=read_int64(ext["g"]),
                flag=read_int32(of("h", "0")),
                properties=of("i"),
                reconsume_times=None if times is None else read_int32(times),
                unit_mode=_TRUTHS[of("k")],
                max_reconsume_times=None if most is None else read_int32(most),
                batch=_TRUTHS[of("m")],
            )
        except (KeyError, ValueError):  # or in an unusual form
            return from_ext_of(cls, ext, v2_fields())


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageResponse(Header):
    """``msg_id`` is the offset message id; for a batch several with commas in between.

    ``recall_handle`` (5.3) names a delayed message for code 370.
    """

    wire_names: ClassVar[Mapping[str, str]] = {"msg_region": "MSG_REGION", "trace_on": "TRACE_ON"}

    msg_id: str
    queue_id: Int32
    queue_offset: int
    transaction_id: str | None = None
    # Java's producer requires these two.
    msg_region: str = "DefaultRegion"
    trace_on: str = "true"
    recall_handle: str | None = None


def send_receipt(
    msg_id: str, queue_id: int, queue_offset: int, transaction_id: str | None
) -> dict[str, str]:
    """Return the wire form of the usual ``SendMessageResponse``, optimised: one per send."""
    ext = {"msgId": msg_id, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
    if transaction_id is not None:
        ext["transactionId"] = transaction_id
    ext["MSG_REGION"], ext["TRACE_ON"] = "DefaultRegion", "true"
    return ext


@dataclass(slots=True, kw_only=True)  # not frozen, as the header of sends
class PullMessageHeader(Header):
    """Codes 11 and 361. ``sys_flag``: bits of PullFlag.

    ``suspend_timeout_millis`` limits a long poll. ``life`` is an extension: the incarnation of the
    topic that the offset belongs to; in another one the embedded broker answers at once.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: int
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: int
    suspend_timeout_millis: int
    subscription: str | None = None
    sub_version: int
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    life: int | None = None

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Read the wire form without checking each field, optimised: one per pull."""
        of, most, life = ext.get, ext.get("maxMsgBytes"), ext.get("life")
        try:
            return cls(
                consumer_group=ext["consumerGroup"],
                topic=ext["topic"],
                queue_id=read_int32(ext["queueId"]),
                queue_offset=read_int64(ext["queueOffset"]),
                max_msg_nums=read_int32(ext["maxMsgNums"]),
                sys_flag=read_int32(ext["sysFlag"]),
                commit_offset=read_int64(ext["commitOffset"]),
                suspend_timeout_millis=read_int64(ext["suspendTimeoutMillis"]),
                subscription=of("subscription"),
                sub_version=read_int64(ext["subVersion"]),
                expression_type=of("expressionType"),
                max_msg_bytes=None if most is None else read_int32(most),
                life=None if life is None else read_int64(life),
            )
        except (KeyError, ValueError):  # the generic way names the invalid field
            return from_ext_of(cls, ext, fields_of(cls))


class PullFlag:
    """Bits of a pull's ``sys_flag``."""

    COMMIT_OFFSET = 1  # also store commit_offset
    SUSPEND = 2  # hold the request until a message arrives
    SUBSCRIPTION = 4  # the filter is in this request, not in the heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageResponse(Header):
    """``next_begin_offset`` is the offset of the next pull, for any response code.

    ``life`` is an extension: the incarnation of the topic, see ``Topics.life``.
    """

    suggest_which_broker_id: int = 0
    next_begin_offset: int
    min_offset: int
    max_offset: int
    life: int | None = None

    def to_ext(self) -> dict[str, str]:
        """Return the wire form, optimised."""
        ext = {
            "suggestWhichBrokerId": str(self.suggest_which_broker_id),
            "nextBeginOffset": str(self.next_begin_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
        }
        if self.life is not None:
            ext["life"] = str(self.life)
        return ext


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHeader(Header):
    """Codes 30 and 31: a queue of the broker that is asked."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetHeader(Header):
    """Code 29: the offset nearest to *timestamp* (ms since 1970).

    ``boundary_type`` (5.x) ``upper``: of the last message up to it, instead of the first from it
    on.
    """

    topic: str
    queue_id: Int32
    timestamp: int
    boundary_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetHeader(Header):
    """Code 14. ``set_zero_if_not_found`` false (5.x): report a missing offset as such.

    Otherwise a broker may answer 0, see ``OffsetProcessor``; Java's consumers omit the field.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConsumerOffsetHeader(Header):
    """Code 15. The last six are extensions, which others ignore.

    The embedded broker refuses a commit with an outdated ``epoch`` (of ``epoch_life``: see
    ``CommittedOffsets``), or with another ``life`` of the topic. ``at_once``: answer when the
    offset is on disk. ``if_none``: keep the offset of a group that has one. ``not_lower``: refuse
    an offset below the stored one, unless that is beyond the end of the queue.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: int
    epoch: int | None = None
    epoch_life: int | None = None
    life: int | None = None
    at_once: bool | None = None
    if_none: bool | None = None
    not_lower: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetResponse(Header):
    """Answers 14, 29, 30 and 31. ``life`` is an extension (30 and 31): see
    ``PullMessageResponse``.

    ``former_lives`` is one as well (30): earlier lives that the current one continues, each with
    the queue offset up to which both have the same messages, as ``LIFE:OFFSET,LIFE:OFFSET``. So is
    ``no_topic`` (30): true if the broker does not have the topic, which therefore has no life.
    """

    offset: int
    life: int | None = None
    former_lives: str | None = None
    no_topic: bool | None = None

    def shared_ends(self) -> dict[int, int]:
        """Return ``former_lives`` as a dictionary. Raise InvalidCommand if it is invalid."""
        if not self.former_lives:
            return {}
        pairs = (each.partition(":") for each in self.former_lives.split(","))
        try:
            return {read_int64(life): read_int64(end) for life, _, end in pairs}
        except ValueError as error:
            raise InvalidCommand(
                f"formerLives is {self.former_lives[:100]!r}: expected LIFE:OFFSET,..."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClientHeader(Header):
    """Code 35: the client leaves as producer, as consumer, or both."""

    wire_names: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeader(Header):
    """Codes 38 and 40."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupHeader(Header):
    """Code 207. Offsets are deleted too if ``clean_offset`` (5.x) or ``remove_offset`` (4.9) is
    set.
    """

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeader(Header):
    """Code 352."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicHeader(Header):
    """Code 17. ``perm``: 2 write, 4 read, 1 inherit (other topics may copy it)."""

    topic: str
    default_topic: str = MODEL_TOPIC
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None  # 5.x: +name=value,-name


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHeader(Header):
    """Codes 105, 202, 215, 216. ``accept_standard_json_only`` requests quoted keys in a route."""

    topic: str
    accept_standard_json_only: bool | None = None


@cache
def v2_fields() -> tuple[HeaderField, ...]:
    """Return the fields of SendMessageHeader with the one-letter names of codes 310 and 320."""
    named = fields_of(SendMessageHeader)
    return tuple(
        field._replace(wire_name=letter)
        for field, letter in zip(named, "abcdefghijklm", strict=True)
    )
