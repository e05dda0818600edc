"""What a producer sends, and whether to try again: shared by its two forms. No I/O, but it logs."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from thin_client import calls
from thin_client.errors import ClientError, SendFailed
from thin_client.key_hash import key_hash
from thin_client.options import client_version
from thin_client.send_order import Key
from thin_client.session import backoff_ns, is_news
from thrift_idl import producer

_log = logging.getLogger("orderlane")

#: The property that holds a message's unique id, in RocketMQ and here.
UNIQUE_ID = "UNIQ_KEY"
#: What the proxy takes in one request by default, and how much of it a batch fills.
MAX_REQUEST_BYTES, _BATCH_BYTES = 5_000_000, 2_000_000
#: Longest that one try may take; then the next one begins.
_TRY_NS = 3_000_000_000

#: Codes after which the same message is sent again under the same id: unknown error, time-out,
#: too fast, shutting down, behind one that failed. After the first two nobody knows whether it was
#: stored.
_AGAIN, _UNKNOWN = frozenset({10, 12, 15, 20, 70}), frozenset({10, 12})
_ILLEGAL = 11


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send.

    *key*: by which it can be found, and which orders it in groups that use KEY. *sharding_key*: all
    messages of one go to one queue, in the order of sending; None (default): the key; with neither
    the queues take turns. *properties*: may hold UNIQ_KEY, else a new id is made.
    """

    topic: str
    body: bytes | str
    key: str | None = None
    sharding_key: str | None = None
    tag: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def new_message_id() -> str:
    """32 upper-case hexadecimal digits, unique."""
    return secrets.token_hex(16).upper()


@dataclass(slots=True)
class Delivery:
    """Some messages on their way in one request, tried until ``deadline_ns``.

    ``message_ids`` are theirs, in their order. What is known to be stored is not sent again.
    """

    messages: list[producer.Message]
    message_ids: list[str]
    deadline_ns: int
    _stored: set[int] = field(default_factory=set)  # indexes of messages, as below
    _doubtful: set[int] = field(default_factory=set)  # may be stored
    _failures: int = 0

    def call(self, now_ns: int) -> tuple[calls.Call[producer.Result], float]:
        """The next try, and how many seconds it may take."""
        try_ns = max(min(self.deadline_ns - now_ns, _TRY_NS), 1_000_000)
        messages = [self.messages[index] for index in self._open()]
        if len(messages) == 1:
            call = calls.send(messages[0], timeout_ms=try_ns // 1_000_000)
        else:
            call = calls.send_batch(messages)
        return call, try_ns / 1e9 + 0.5  # the proxy's own answer may need a moment

    def pause_after(self, result: producer.Result, *, now_ns: int, jitter: float) -> float | None:
        """None if all is stored, else seconds until the next try. Raises SendFailed."""
        sent = self._open()
        if result.code == 0:
            self._stored.update(sent)
            return None
        code = -1 if result.code is None else result.code
        text = result.msg or "no reason given"
        if result.messages is not None and len(result.messages) == len(sent):
            outcomes = [(-1 if m.code is None else m.code, m.msg) for m in result.messages]
        else:  # of a batch some may be stored, unless it was refused whole
            known = len(sent) == 1 or code == _ILLEGAL
            outcomes = [(code if known else 10, text)] * len(sent)
        reasons: dict[int, str] = {}
        for index, (each, reason) in zip(sent, outcomes, strict=True):
            if each == 0:
                self._stored.add(index)
                continue
            text = reasons[index] = reason or text  # absent: as the one before
            if each in _UNKNOWN:
                self._doubtful.add(index)
        if not reasons:
            return None
        final = next((each for each, _ in outcomes if each != 0 and each not in _AGAIN), None)
        again = final is None and code in _AGAIN
        return self._pause(
            reasons, code if final is None else final, again=again, now_ns=now_ns, jitter=jitter
        )

    def pause_after_error(
        self, error: ClientError, *, sent: bool, now_ns: int, jitter: float
    ) -> float:
        """Seconds until the next try; *sent*: the request may have arrived. Raises SendFailed."""
        if sent:
            self._doubtful.update(self._open())
        reasons = dict.fromkeys(self._open(), str(error))
        return self._pause(reasons, None, again=error.retriable, now_ns=now_ns, jitter=jitter)

    def open_ids(self) -> list[str]:
        """The ids of what is not known to be stored."""
        return [self.message_ids[index] for index in self._open()]

    def keys(self) -> list[Key]:
        """By what those messages keep their order."""
        messages = [self.messages[index] for index in self._open()]
        return [(each.topic or "", each.hashId) for each in messages if each.hashId is not None]

    def _open(self) -> list[int]:
        return [index for index in range(len(self.messages)) if index not in self._stored]

    def _pause(
        self, reasons: dict[int, str], code: int | None, *, again: bool, now_ns: int, jitter: float
    ) -> float:
        self._failures += 1
        pause_ns = backoff_ns(self._failures, jitter)
        text = next(iter(reasons.values()))
        if again and now_ns + pause_ns < self.deadline_ns:
            if is_news(self._failures):
                _log.warning("sending to %s failed, trying again: %s", self.messages[0].topic, text)
            return pause_ns / 1e9
        end = "may be stored nevertheless" if self._doubtful - self._stored else "not stored"
        raise SendFailed(
            self._sentence(text, end),
            code=code,
            failures={self.message_ids[index]: why for index, why in reasons.items()},
            outcome_unknown=bool(self._doubtful - self._stored),
        )

    def not_sent(self, why: str) -> SendFailed:
        """What to raise instead of a first try."""
        failures = dict.fromkeys(self.message_ids, why)
        text = self._sentence(why, "not stored")
        return SendFailed(text, code=None, failures=failures, outcome_unknown=False)

    def _sentence(self, why: str, end: str) -> str:
        first, *rest = self.open_ids()
        others = f" and {len(rest)} others" if rest else ""
        topic = self.messages[0].topic
        return f"sending to {topic} failed: {why} (message {first}{others}: {end})"


def deliveries(messages: Sequence[Outgoing], *, deadline_ns: int) -> list[Delivery]:
    """Cut *messages* into requests, in their order.

    Raises ValueError or TypeError that says which message cannot be sent, and why.
    """
    requests: list[Delivery] = []
    room = 0
    for each in messages:
        message, message_id = _wire_message(each)
        size = _size(message)
        if size > MAX_REQUEST_BYTES:
            raise ValueError(
                f"a message to {each.topic} has {size} bytes: a request takes {MAX_REQUEST_BYTES}"
            )
        if not requests or size > room:
            requests.append(Delivery([], [], deadline_ns))
            room = _BATCH_BYTES
        requests[-1].messages.append(message)
        requests[-1].message_ids.append(message_id)
        room -= size
    return requests


def _wire_message(each: Outgoing) -> tuple[producer.Message, str]:
    if not each.topic:
        raise ValueError("topic is empty: expected the name of a topic")
    body: object = each.body
    if not isinstance(body, bytes | str):
        kind = type(body).__name__
        raise TypeError(f"the body of a message to {each.topic} is {kind}: expected bytes or str")
    properties = dict(each.properties)
    message_id = properties.setdefault(UNIQUE_ID, new_message_id())
    for text in (each.topic, each.key or "", each.tag or "", *properties, *properties.values()):
        _check_text(text, each.topic)
    sharding_key = each.key if each.sharding_key is None else each.sharding_key
    message = producer.Message(
        topic=each.topic,
        key=each.key,
        hashId=None if sharding_key is None else key_hash(sharding_key),
        tags=each.tag,
        partitionId=-1,
        body=body.encode() if isinstance(body, str) else body,
        version=client_version(),
        properties=properties,
    )
    return message, message_id


def _check_text(text: str, topic: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} in a message to {topic} is no valid text: {error}") from error


def _size(message: producer.Message) -> int:
    """Bytes on the wire, a little too high."""
    properties = message.properties or {}
    texts = [message.topic or "", message.key or "", message.tags or "", *properties]
    texts += properties.values()
    return len(message.body or b"") + 128 + sum(4 * len(text) + 8 for text in texts)
