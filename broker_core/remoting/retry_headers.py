"""The custom headers of recalls and of messages sent back. Pure.

Source: ``RecallMessageRequestHeader`` (5.3.3) and ``ConsumerSendMsgBackRequestHeader`` (4.9.8).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.remoting.header_fields import Header, Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageHeader(Header):
    """Code 370: cancel a delayed message."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageResponse(Header):
    """Answers 370 with the id of the message."""

    msg_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackHeader(Header):
    """Code 36. ``offset`` is the message's position in the log, as in its offset message id.

    ``delay_level`` 0 leaves it to the broker; below 0 the message becomes a dead letter.
    """

    offset: int
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
