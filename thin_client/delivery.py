"""What a producer sends, and whether to try again: shared by its two forms. No I/O, but it logs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from thin_client import calls, chance
from thin_client.backoff import backoff_ns, is_news
from thin_client.errors import ClientError, SendFailed
from thin_client.json_path import JsonPath
from thin_client.key_hash import key_hash, plain_key
from thin_client.options import client_version
from thin_client.send_order import Key
from thrift_idl import producer

_log = logging.getLogger("orderlane")

json_path = lru_cache(maxsize=64)(JsonPath)
#: What a proxy says of a request.
Answer = producer.Result | producer.DelayResult

#: The property that holds a message's unique id, in RocketMQ and here.
UNIQUE_ID = "UNIQ_KEY"
#: What the proxy takes in one request by default, and how much of it a batch fills.
MAX_REQUEST_BYTES, _BATCH_BYTES = 5_000_000, 2_000_000
#: As large as a number of a queue may be on the wire.
_LAST_QUEUE = 2**31 - 1
#: Longest that one try may take; then the next one begins.
_TRY_NS = 3_000_000_000

#: Codes after which the same message is sent again under the same id: unknown error, time-out,
#: too fast, shutting down, behind one that failed. After the first two it is unknown whether it was
#: stored.
ADD, CANCEL = 1, 2  # DelayMessage.action
_AGAIN, _UNKNOWN = frozenset({10, 12, 15, 20, 70}), frozenset({10, 12})
#: Codes after which nothing of a batch was stored: illegal, no token.
_REFUSED_WHOLE = frozenset({11, 71})


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send.

    *key*: by which it can be found, and which orders it in groups that use KEY. *sharding_key*: all
    messages of one go to one queue, in the order of sending; None (default): what *sharding_path*,
    a plain JSON path such as ``$.order.id``, finds in the body; if there is neither, the key; with
    none of them the queues take turns. Blanks around a key (U+0000 to U+0020) are no part of it.
    *queue*: this one, counted from 0 over the brokers by name, or ``"random"``, whatever the keys;
    one that the topic does not have is refused, with code 11. *delay_s*: not before so many
    seconds, in whole ones. *properties*: may hold UNIQ_KEY, else an id is made.
    """

    topic: str
    body: bytes | str
    key: str | None = None
    sharding_key: str | None = None
    tag: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_path: str | None = None
    queue: int | Literal["random"] | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a producer adds to its messages."""

    token: str | None
    #: Adds the properties of a trace.
    inject: Callable[[dict[str, str]], None]
    #: Seconds since 1970, from which delays count.
    wall_s: Callable[[], float]


def new_message_id() -> str:
    """32 upper-case hexadecimal digits, unique."""
    return chance.token_hex(16).upper()


@dataclass(slots=True)
class Delivery:
    """Some messages on their way in one request, tried until ``deadline_ns``.

    ``message_ids`` are theirs, in their order. What is known to be stored is not sent again.
    """

    messages: list[producer.Message | producer.DelayMessage]
    message_ids: list[str]
    deadline_ns: int
    #: What a delayed message is cancelled by, once it is stored.
    delay_id: str | None = None
    _stored: set[int] = field(default_factory=set)  # indexes of messages, as below
    _doubtful: set[int] = field(default_factory=set)  # may be stored
    _failures: int = 0

    def call(self, now_ns: int) -> tuple[calls.Call[Any], float]:
        """The next try, and how many seconds it may take."""
        try_ns = max(min(self.deadline_ns - now_ns, _TRY_NS), 1_000_000)
        messages = [self.messages[index] for index in self._open()]
        timeout_ms = try_ns // 1_000_000
        call: calls.Call[Any]
        match messages:
            case [producer.DelayMessage() as delayed]:  # always alone
                call = calls.send_delayed(delayed, timeout_ms=timeout_ms)
            case [producer.Message() as single]:
                call = calls.send(single, timeout_ms=timeout_ms)
            case _:
                call = calls.send_batch(messages)  # type: ignore[arg-type]
        return call, try_ns / 1e9 + 0.5  # the proxy's own answer may need a moment

    def pause_after(self, result: Answer, *, now_ns: int, jitter: float) -> float | None:
        """None if all is stored, else seconds until the next try. Raises SendFailed."""
        sent = self._open()
        if result.code == 0:
            self._stored.update(sent)
            self.delay_id = getattr(result, "uniqDelayMsgId", None)
            return None
        code = -1 if result.code is None else result.code
        text = result.msg or "no reason given"
        each_one = getattr(result, "messages", None)
        if each_one is not None and len(each_one) == len(sent):
            outcomes = [(-1 if m.code is None else m.code, m.msg) for m in each_one]
        else:  # of a batch some may be stored, unless it was refused whole
            known = len(sent) == 1 or code in _REFUSED_WHOLE
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

    @property
    def in_doubt(self) -> bool:
        """True once a try may have stored messages that are sent again."""
        return bool(self._doubtful)

    def open_ids(self) -> list[str]:
        """The ids of what is not known to be stored."""
        return [self.message_ids[index] for index in self._open()]

    def keys(self) -> list[Key]:
        """By what those messages keep their order."""
        messages = [self.messages[index] for index in self._open()]
        return [
            (each.topic or "", each.hashId)
            for each in messages
            if isinstance(each, producer.Message) and each.hashId is not None
        ]

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
        raise SendFailed(
            self._sentence(text, doubtful=bool(self._doubtful - self._stored)),
            code=code,
            failures={self.message_ids[index]: why for index, why in reasons.items()},
            outcome_unknown=bool(self._doubtful - self._stored),
        )

    def not_sent(self, why: str) -> SendFailed:
        """What to raise instead of a first try."""
        failures = dict.fromkeys(self.message_ids, why)
        text = self._sentence(why, doubtful=False)
        return SendFailed(text, code=None, failures=failures, outcome_unknown=False)

    def _sentence(self, why: str, *, doubtful: bool) -> str:
        first, *rest = self.open_ids()
        others = f" and {len(rest)} others" if rest else ""
        what, done = "sending to", "stored"
        if getattr(self.messages[0], "action", None) == CANCEL:
            what, done = "cancelling a message to", "cancelled"
        end = f"may be {done} nevertheless" if doubtful else f"not {done}"
        return f"{what} {self.messages[0].topic} failed: {why} (message {first}{others}: {end})"


def cancellation(topic: str, delay_id: str, *, deadline_ns: int, stamp: Stamp) -> Delivery:
    """The request that a delayed message is not to come. Raises ValueError for an empty name."""
    if not topic or not delay_id:
        raise ValueError(f"topic {topic!r}, delay_id {delay_id!r}: neither may be empty")
    message = producer.DelayMessage(
        topic=topic,
        action=CANCEL,
        uniqDelayMsgId=delay_id,
        version=client_version(),
        token=stamp.token,
    )
    return Delivery([message], [delay_id], deadline_ns)


def deliveries(
    messages: Sequence[Outgoing],
    *,
    deadline_ns: int,
    stamp: Stamp,
) -> list[Delivery]:
    """Cut *messages* into requests, in their order.

    Raises ValueError or TypeError that says which message cannot be sent, and why.
    """
    requests: list[Delivery] = []
    room = 0
    for each in messages:
        message, message_id = _wire_message(each, stamp)
        size = _size(message)
        if size > MAX_REQUEST_BYTES:
            raise ValueError(
                f"a message to {each.topic} has {size} bytes: a request takes {MAX_REQUEST_BYTES}"
            )
        delayed = isinstance(message, producer.DelayMessage)
        if not requests or size > room or delayed:
            requests.append(Delivery([], [], deadline_ns))
            room = _BATCH_BYTES
        requests[-1].messages.append(message)
        requests[-1].message_ids.append(message_id)
        room = 0 if delayed else room - size
    return requests


def _wire_message(
    each: Outgoing, stamp: Stamp
) -> tuple[producer.Message | producer.DelayMessage, str]:
    if not each.topic:
        raise ValueError("topic is empty: expected the name of a topic")
    body: object = each.body
    if not isinstance(body, bytes | str):
        kind = type(body).__name__
        raise TypeError(f"the body of a message to {each.topic} is {kind}: expected bytes or str")
    properties = dict(each.properties)
    message_id = properties.setdefault(UNIQUE_ID, new_message_id())
    stamp.inject(properties)
    for text in (each.topic, each.key or "", each.tag or "", *properties, *properties.values()):
        _check_text(text, each.topic)
    content = body.encode() if isinstance(body, str) else body
    partition = _partition(each)
    if each.delay_s is not None:
        return _delayed(each, content, properties, stamp), message_id
    sharding_key = _sharding_key(each, content)
    message = producer.Message(
        topic=each.topic,
        key=each.key,
        hashId=None if sharding_key is None else key_hash(sharding_key),
        tags=each.tag,
        partitionId=partition,
        body=content,
        version=client_version(),
        properties=properties,
        token=stamp.token,
    )
    return message, message_id


def _delayed(
    each: Outgoing, body: bytes, properties: dict[str, str], stamp: Stamp
) -> producer.DelayMessage:
    delay_s = each.delay_s or 0.0
    if not 0 <= delay_s < math.inf:
        raise ValueError(f"delay_s of a message to {each.topic} is {delay_s}: expected 0 or more")
    return producer.DelayMessage(
        topic=each.topic,
        body=body,
        tags=each.tag,
        action=ADD,
        timestamp=math.ceil(stamp.wall_s() + delay_s),
        dmsgtype=2,
        uuid=properties[UNIQUE_ID],
        version=client_version(),
        properties=properties | ({} if each.key is None else {"KEYS": each.key}),
        token=stamp.token,
    )


def _sharding_key(each: Outgoing, body: bytes) -> str | None:
    if each.queue is not None:
        return None
    if each.sharding_key is not None:
        return plain_key(each.sharding_key)
    found = None
    if each.sharding_path is not None:
        try:
            found = json_path(each.sharding_path).text_in(body)
        except ValueError as error:
            raise ValueError(f"a message to {each.topic} cannot be sent: {error}") from error
    return (plain_key(each.key or "") or None) if found is None else found


def _partition(each: Outgoing) -> int:
    if each.queue is None:
        return -1
    if each.queue == "random":
        return -2
    queue = each.queue
    if isinstance(queue, bool) or not isinstance(queue, int) or not 0 <= queue <= _LAST_QUEUE:
        raise ValueError(
            f"queue of a message to {each.topic} is {queue!r}: expected a number from 0 on,"
            ' or "random"'
        )
    return queue


def _check_text(text: str, topic: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} in a message to {topic} is no valid text: {error}") from error


def _size(message: producer.Message | producer.DelayMessage) -> int:
    """Bytes on the wire, a little too high."""
    properties = message.properties or {}
    texts = [message.topic or "", message.tags or "", *properties]
    texts.append(getattr(message, "key", None) or "")
    texts += properties.values()
    return len(message.body or b"") + 128 + sum(4 * len(text) + 8 for text in texts)
