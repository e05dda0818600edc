"""Requests of a producer and their retries, shared by both forms. No I/O, but it logs.

A half message is an exception: once it may be stored it is not sent again, since a second one would
be a second transaction with the same message.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from thin_client import calls, chance
from thin_client.arguments import check_seconds, check_text
from thin_client.backoff import backoff_ns, is_news
from thin_client.errors import ClientError, ProxyFault, SendFailed
from thin_client.json_path import JsonPath
from thin_client.key_hash import key_hash, plain_key
from thin_client.options import client_version
from thin_client.send_order import Key
from thin_client.transactions import COMMIT, ROLLBACK, why_unsupported
from thrift_idl import producer

_log = logging.getLogger("orderlane")

json_path = lru_cache(maxsize=64)(JsonPath)
#: A proxy's answer to a request.
Answer = producer.Result | producer.DelayResult | producer.Prepared | producer.EncodedResult

#: The property with a message's unique ID, as in RocketMQ.
UNIQUE_ID = "UNIQ_KEY"
#: The proxy's default limit for a request, and the size at which a batch is split.
MAX_REQUEST_BYTES, _BATCH_BYTES = 5_000_000, 2_000_000
#: The name of a queue: its broker's and its number there.
_QID = re.compile(r".+_[0-9]+", re.DOTALL)
#: The highest queue number on the wire.
_LAST_QUEUE = 2**31 - 1
#: Time-out of one try, after which the next one starts.
TRY_NS = 3_000_000_000

ADD, CANCEL = 1, 2  # DelayMessage.action
#: Codes after which the message is sent again under the same ID: unknown error, time-out, too fast,
#: shutting down, behind a failed message. After the first two it may have been stored.
AGAIN, UNKNOWN = frozenset({10, 12, 15, 20, 70}), frozenset({10, 12})
#: Codes after which no message of a batch was stored, if they come without results of the messages:
#: illegal, too fast, no token.
REFUSED_WHOLE = frozenset({11, 15, 71})
#: The code for a transaction that ended otherwise.
_ENDED = 72


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send.

    Surrounding blanks (U+0000 to U+0020) of both keys are ignored.

    Args:
        topic: the name of the topic.
        body: bytes, or text to be encoded as UTF-8; at least 1 byte.
        key: message key for searches, and the order key of groups with order key KEY.
        sharding_key: all messages of one sharding key go to one queue, in the order of sending.
            Default: the value at *sharding_path*, else *key*; without all three, queues alternate.
        tag: RocketMQ's tag, for filters.
        properties: the application's properties; may contain UNIQ_KEY, otherwise generated.
        sharding_path: plain JSON path into the body, such as ``$.order.id``.
        queue: number of the queue, from 0 over the brokers sorted by name, its name, as in
            ``"broker-a_0"``, or ``"random"``; overrides the keys. A queue that the topic does not
            have is refused with code 11.
        delay_s: deliver after this time, in whole seconds.
    """

    topic: str
    body: bytes | str
    key: str | None = None
    sharding_key: str | None = None
    tag: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_path: str | None = None
    queue: int | str | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """A producer's additions to its messages."""

    token: str | None
    #: Adds trace properties; None: there are none.
    inject: Callable[[dict[str, str]], None] | None
    #: Returns seconds since 1970, the start of delays.
    wall_s: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Half:
    """A half message to store: *message*, in *request*."""

    request: producer.PrepareRequest
    message: producer.Message

    @property
    def topic(self) -> str | None:
        """Its topic."""
        return self.message.topic


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of the transaction of *half*."""

    request: producer.EndRequest
    half: Half

    @property
    def topic(self) -> str | None:
        """The topic of its message."""
        return self.half.topic


#: What a request carries.
Content = producer.Message | producer.DelayMessage | Half | Ending


def new_message_id() -> str:
    """Return a unique ID of 32 upper-case hexadecimal digits."""
    return chance.token_hex(16).upper()


@dataclass(slots=True)
class Delivery:
    """Messages of one request, retried until ``deadline_ns``.

    ``message_ids`` has their IDs in order. Messages known to be stored are not sent again.
    """

    messages: list[Content]
    message_ids: list[str]
    deadline_ns: int
    #: Upper estimate of the bytes of the messages.
    size: int = 0
    #: ID for ``cancel`` of a stored delayed message.
    delay_id: str | None = None
    #: Names the transaction of a stored half message.
    transaction: str | None = None
    #: The messages as ``sendEncoded`` takes them, and the name of their queue, None for any.
    #: Without entries the request goes as messages.
    entries: list[bytes] | None = None
    qid: str | None = None
    #: The number of the queues among which that one was selected, None for any.
    route: int | None = None
    #: False for messages that must not be encoded, or not again.
    may_be_encoded: bool = True
    _stored: set[int] = field(default_factory=set)  # indexes of stored messages
    _doubtful: set[int] = field(default_factory=set)  # indexes of messages that may be stored
    _failures: int = 0
    _server: object = None  # the address of the last try

    def ask(self, server: object) -> None:
        """Record the address to which the next try is sent; errors name it."""
        self._server = server

    def call(self, now_ns: int) -> tuple[calls.Call[Any], float]:
        """Return the call of the next try, and its time-out in seconds."""
        left_ns = self.deadline_ns - now_ns
        try_ns = max(left_ns if self._is_half else min(left_ns, TRY_NS), 1_000_000)
        timeout_ms = try_ns // 1_000_000
        if self.entries is not None:
            return self._encoded_call(self.entries, timeout_ms), try_ns / 1e9 + 0.5
        messages = [self.messages[index] for index in self._open()]
        call: calls.Call[Any]
        match messages:
            case [producer.DelayMessage() as delayed]:  # always alone
                call = calls.send_delayed(delayed, timeout_ms=timeout_ms)
            case [producer.Message() as single]:
                call = calls.send(single, timeout_ms=timeout_ms)
            case [Half() as half]:
                call = calls.prepare_transaction(half.request, timeout_ms=timeout_ms)
            case [Ending() as ending]:
                call = calls.end_transaction(ending.request, timeout_ms=timeout_ms)
            case _:
                call = calls.send_batch(messages)  # type: ignore[arg-type]
        return call, try_ns / 1e9 + 0.5  # the proxy's answer to its own time-out may be late

    def part(
        self,
        indexes: Sequence[int],
        *,
        entries: list[bytes] | None = None,
        qid: str | None = None,
        route: int | None = None,
    ) -> Delivery:
        """Return a request with the messages at *indexes* of this one, which was not sent: encoded
        for a queue of a *route*, or without *entries* as messages.
        """
        return Delivery(
            [self.messages[index] for index in indexes],
            [self.message_ids[index] for index in indexes],
            self.deadline_ns,
            self.size * len(indexes) // len(self.messages),
            entries=entries,
            qid=qid,
            route=route,
            may_be_encoded=False,
        )

    def _encoded_call(
        self, entries: Sequence[bytes], timeout_ms: int
    ) -> calls.Call[producer.EncodedResult]:
        first, sent = self.messages[0], self._open()
        batch = producer.EncodedBatch(
            topic=first.topic,
            qid=self.qid,
            count=len(sent),
            body=b"".join([entries[index] for index in sent]),
            timeoutMs=timeout_ms,
            version=client_version(),
            route=self.route,
            token=getattr(first, "token", None),
        )
        return calls.send_encoded(batch)

    def pause_after(self, result: Answer, *, now_ns: int, jitter: float) -> float | None:
        """Return None if all are stored, else the seconds until the next try. Raises SendFailed."""
        self.may_be_encoded = False
        sent = self._open()
        if result.code == 0:
            self._stored.update(sent)
            self.delay_id = getattr(result, "uniqDelayMsgId", None)
            self.transaction = getattr(result, "transaction", None)
            return None
        code = -1 if result.code is None else result.code
        text = result.msg or "no reason given"
        each_one = getattr(result, "messages", None)
        outcomes: list[tuple[int, str | None]]
        if isinstance(result, producer.EncodedResult):
            stored = min(max(result.stored or 0, 0), len(sent))
            outcomes = [(0 if number < stored else code, text) for number in range(len(sent))]
        elif each_one is not None and len(each_one) == len(sent):
            outcomes = [(-1 if m.code is None else m.code, m.msg) for m in each_one]
        else:  # some messages of a batch may be stored, unless the whole batch was refused
            known = len(sent) == 1 or code in REFUSED_WHOLE
            outcomes = [(code if known else 10, text)] * len(sent)
        reasons: dict[int, str] = {}
        for index, (each, reason) in zip(sent, outcomes, strict=True):
            if each == 0:
                self._stored.add(index)
                continue
            text = reasons[index] = reason or text  # without a reason: that of the message before
            if each in UNKNOWN:
                self._doubtful.add(index)
        if not reasons:
            return None
        if self.entries is not None and code not in AGAIN:
            self.entries = None  # messages may avoid the refusal, or explain it
            return 0.0
        final = next((each for each, _ in outcomes if each != 0 and each not in AGAIN), None)
        again = final is None and code in AGAIN
        return self._pause(
            reasons, code if final is None else final, again=again, now_ns=now_ns, jitter=jitter
        )

    def pause_after_error(
        self, error: ClientError, *, sent: bool, now_ns: int, jitter: float
    ) -> float:
        """Return the seconds until the next try; *sent*: the request may have arrived.

        Raises SendFailed.
        """
        self.may_be_encoded = False
        if self.entries is not None and isinstance(error, ProxyFault) and error.unknown_method:
            self.entries = None
            return 0.0
        unsupported = why_unsupported(error, self._server) if self._is_transaction else None
        if sent and not (isinstance(error, ProxyFault) and error.unknown_method):
            self.doubt()
        reasons = dict.fromkeys(self._open(), unsupported or str(error))
        return self._pause(reasons, None, again=error.retriable, now_ns=now_ns, jitter=jitter)

    @property
    def single(self) -> bool:
        """True for one message that is not delayed."""
        return len(self.messages) == 1 and isinstance(self.messages[0], producer.Message)

    @property
    def _is_half(self) -> bool:
        return isinstance(self.messages[0], Half)

    @property
    def _is_transaction(self) -> bool:
        return isinstance(self.messages[0], Half | Ending)

    @property
    def in_doubt(self) -> bool:
        """True once a try may have stored messages that will be sent again."""
        return bool(self._doubtful)

    def open_ids(self) -> list[str]:
        """Return the IDs of messages not known to be stored."""
        return [self.message_ids[index] for index in self._open()]

    def keys(self) -> list[Key]:
        """Return the topics of messages not known to be stored, each with its unit of order: the
        key's hash, or the queue that was chosen by number or name.

        A message in a transaction takes its place in the order by its commit.
        """
        keys: list[Key] = []
        for each in [self.messages[index] for index in self._open()]:
            if isinstance(each, producer.Message):
                keys += _keys_of(each)
            elif isinstance(each, Ending) and each.request.outcome == COMMIT:
                keys += _keys_of(each.half.message)
        return keys

    def doubt(self) -> None:
        """Record that the open messages may be stored."""
        self._doubtful.update(self._open())

    def _open(self) -> list[int]:
        return [index for index in range(len(self.messages)) if index not in self._stored]

    def _pause(
        self, reasons: dict[int, str], code: int | None, *, again: bool, now_ns: int, jitter: float
    ) -> float:
        self._failures += 1
        pause_ns = backoff_ns(self._failures, jitter)
        text = next(iter(reasons.values()))
        again = again and not (self._is_half and self._doubtful)
        if again and now_ns + pause_ns < self.deadline_ns:
            if is_news(self._failures):
                what, _ = _words(self.messages[0])
                _log.warning("%s %s failed, retrying: %s", what, self.messages[0].topic, text)
            return pause_ns / 1e9
        doubtful = self._outcome_unknown(code)
        raise SendFailed(
            self._sentence(text, doubtful=doubtful),
            code=code,
            failures={self.message_ids[index]: why for index, why in reasons.items()},
            outcome_unknown=doubtful,
        )

    def given_up(self, why: str) -> SendFailed:
        """Return the error for open messages that are not sent, or not again."""
        doubtful = self._outcome_unknown(None)
        return SendFailed(
            self._sentence(why, doubtful=doubtful),
            code=None,
            failures=dict.fromkeys(self.open_ids(), why),
            outcome_unknown=doubtful,
        )

    def _outcome_unknown(self, code: int | None) -> bool:
        """Return whether the failure with *code* leaves the outcome open: a transaction that was
        not ended is ended by a check.
        """
        if isinstance(self.messages[0], Ending):
            return code != _ENDED
        return bool(self._doubtful - self._stored)

    def _sentence(self, why: str, *, doubtful: bool) -> str:
        first, *rest = self.open_ids()
        others = f" and {len(rest)} other{'s' if len(rest) > 1 else ''}" if rest else ""
        what, done = _words(self.messages[0])
        end = f"may have been {done}" if doubtful else f"not {done}"
        if doubtful and isinstance(self.messages[0], Ending):
            end = f"{end}; if not, the check decides"
        by = "" if self._server is None or str(self._server) in why else f" at {self._server}"
        return f"{what} {self.messages[0].topic}{by} failed: {why} (message {first}{others}: {end})"


def _keys_of(message: producer.Message) -> list[Key]:
    topic = message.topic or ""
    if message.hashId is not None:
        return [(topic, message.hashId)]
    if message.partitionId >= 0:
        return [(topic, f"queue {message.partitionId}")]
    if message.qid is not None:
        return [(topic, f"queue {message.qid}")]
    return []


def _words(content: Content) -> tuple[str, str]:
    """Return how an error names the request, and its success."""
    if isinstance(content, Half):
        return "preparing a message to", "prepared"
    if isinstance(content, Ending):
        commits = content.request.outcome == COMMIT
        what, done = ("committing", "committed") if commits else ("rolling back", "rolled back")
        return f"{what} a message to", done
    if getattr(content, "action", None) == CANCEL:
        return "cancelling a message to", "cancelled"
    return "sending to", "stored"


def joint_call(requests: Sequence[Delivery], now_ns: int) -> tuple[calls.Call[Any], float]:
    """Return the call of the next try of *requests* together, and its time-out in seconds.

    Several must be ``single``.
    """
    if len(requests) == 1:
        return requests[0].call(now_ns)
    left_ns = max(request.deadline_ns for request in requests) - now_ns
    try_ns = max(min(left_ns, TRY_NS), 1_000_000)
    return calls.send_batch([request.messages[0] for request in requests]), try_ns / 1e9 + 0.5  # type: ignore[misc]


def each_answer(answer: Answer, requests: Sequence[Delivery]) -> list[Answer] | None:
    """Return the answer for each of *requests* that were sent together.

    None: the proxy refused them as a whole without a result for each, because of an unknown one of
    them; if some may be stored, that is recorded in all.
    """
    if len(requests) == 1 or answer.code == 0:
        return [answer] * len(requests)
    results = getattr(answer, "messages", None)
    if results is not None and len(results) == len(requests):
        reason = answer.msg
        answers: list[Answer] = []
        for result in results:
            reason = result.msg or reason  # without a reason: that of the message before
            answers.append(producer.Result(code=result.code, msg=reason))
        return answers
    if answer.code in AGAIN:
        code = answer.code if answer.code in REFUSED_WHOLE else 10  # some of them may be stored
        return [producer.Result(code=code, msg=answer.msg)] * len(requests)
    if answer.code not in REFUSED_WHOLE:
        for request in requests:
            request.doubt()
    return None


def cancellation(topic: str, delay_id: str, *, deadline_ns: int, stamp: Stamp) -> Delivery:
    """Return the request to cancel a delayed message.

    Raises ValueError for an empty argument or one that is not valid text, else as ``deliveries``.
    """
    for name, text in (("topic", topic), ("delay_id", delay_id)):
        check_text(name, text)
        _check_text(text, topic)
    if not topic or not delay_id:
        raise ValueError(f"topic is {topic!r} and delay_id {delay_id!r}: expected neither empty")
    message = producer.DelayMessage(
        topic=topic,
        action=CANCEL,
        uniqDelayMsgId=delay_id,
        version=client_version(),
        token=stamp.token,
    )
    return Delivery([message], [delay_id], deadline_ns)


def preparation(
    message: Outgoing, *, group: str, check_after_s: int, deadline_ns: int, stamp: Stamp
) -> Delivery:
    """Return the request to store the half message of *message*. Raises as ``deliveries``."""
    if message.delay_s is not None:
        raise ValueError(
            f"delay_s of a message to {message.topic} is {message.delay_s}: a message in a"
            " transaction cannot be delayed"
        )
    (plain,) = deliveries([message], deadline_ns=deadline_ns, stamp=stamp)
    (content,) = plain.messages
    assert isinstance(content, producer.Message)
    request = producer.PrepareRequest(
        message=content, group=group, checkAfterS=check_after_s, token=stamp.token
    )
    return Delivery([Half(request, content)], plain.message_ids, deadline_ns, plain.size)


def ending(prepared: Delivery, *, commit: bool, deadline_ns: int, stamp: Stamp) -> Delivery:
    """Return the request to end the transaction of a stored half message."""
    (half,) = prepared.messages
    assert isinstance(half, Half)
    request = producer.EndRequest(
        transaction=prepared.transaction,
        outcome=COMMIT if commit else ROLLBACK,
        token=stamp.token,
    )
    return Delivery([Ending(request, half)], prepared.message_ids, deadline_ns)


def deliveries(
    messages: Sequence[Outgoing],
    *,
    deadline_ns: int,
    stamp: Stamp,
) -> list[Delivery]:
    """Split *messages* into requests, in order.

    Raises ValueError or TypeError that names the first invalid message and its defect.
    """
    requests: list[Delivery] = []
    room = 0
    for each in messages:
        message, message_id = _wire_message(each, stamp)
        size = _size(message)
        if size > MAX_REQUEST_BYTES:
            raise ValueError(
                f"a message to {each.topic} has {size} bytes: expected at most {MAX_REQUEST_BYTES}"
            )
        delayed = isinstance(message, producer.DelayMessage)
        if not requests or size > room or delayed:
            requests.append(Delivery([], [], deadline_ns))
            room = _BATCH_BYTES
        requests[-1].messages.append(message)
        requests[-1].message_ids.append(message_id)
        requests[-1].size += size
        room = 0 if delayed else room - size
    return requests


def _wire_message(
    each: Outgoing, stamp: Stamp
) -> tuple[producer.Message | producer.DelayMessage, str]:
    _check_types(each)
    if not each.topic:
        raise ValueError("topic is empty: expected a topic name")
    body: object = each.body
    if not isinstance(body, bytes | str):
        kind = type(body).__name__
        raise TypeError(f"the body of a message to {each.topic} is {kind}: expected bytes or str")
    properties = dict(each.properties)
    message_id = properties.setdefault(UNIQUE_ID, new_message_id())
    qid = each.queue if isinstance(each.queue, str) else ""
    for text in (
        each.topic,
        each.key or "",
        each.tag or "",
        qid,
        *properties,
        *properties.values(),
    ):
        _check_text(text, each.topic)
    if stamp.inject is not None:
        properties = _traced(properties, stamp.inject)
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
        qid=each.queue if isinstance(each.queue, str) and partition == -1 else None,
    )
    return message, message_id


def _traced(properties: dict[str, str], inject: Callable[[dict[str, str]], None]) -> dict[str, str]:
    """Return *properties* with those that a tracer adds; its faults do not prevent a send."""
    traced = dict(properties)
    try:
        inject(traced)
        for name, value in traced.items():
            (name + value).encode()  # as a codec that refuses the request would
    except Exception:
        _log.exception("a tracer failed; the message is sent without its trace")
        return properties
    return {**traced, **properties}


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
    """Return the number of the queue; -1: by name or keys; -2: any."""
    queue = each.queue
    if queue == "random":
        return -2
    if queue is None or (isinstance(queue, str) and _QID.fullmatch(queue)):
        return -1
    if isinstance(queue, bool) or not isinstance(queue, int) or not 0 <= queue <= _LAST_QUEUE:
        raise ValueError(
            f"queue of a message to {each.topic} is {queue!r}: expected a number of at least 0, a"
            ' name as in "broker-a_0", or "random"'
        )
    return queue


def _check_types(each: Outgoing) -> None:
    """Raise TypeError for an argument of a wrong type, such as a number as the key."""
    if not isinstance(each, Outgoing):
        raise TypeError(f"a message to send is {each!r}: expected Outgoing(topic, body, ...)")
    check_text("topic", each.topic)
    texts = (
        ("key", each.key),
        ("sharding_key", each.sharding_key),
        ("tag", each.tag),
        ("sharding_path", each.sharding_path),
    )
    for name, value in texts:
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} of a message to {each.topic} is {value!r}: expected text")
    properties: object = each.properties
    if not isinstance(properties, Mapping):
        raise TypeError(
            f"properties of a message to {each.topic} is {properties!r}: expected a dict of texts"
        )
    for name, value in properties.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError(
                f"property {name!r} of a message to {each.topic} is {value!r}: expected texts"
            )
    if each.delay_s is not None:
        check_seconds(f"delay_s of a message to {each.topic}", each.delay_s)


def _check_text(text: str, topic: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} in a message to {topic} is not valid text: {error}") from error


def _size(message: producer.Message | producer.DelayMessage) -> int:
    """Return an upper estimate of the bytes on the wire."""
    properties = message.properties or {}
    texts = [message.topic or "", message.tags or "", *properties]
    texts.append(getattr(message, "key", None) or "")
    texts += properties.values()
    return len(message.body or b"") + 128 + sum(4 * len(text) + 8 for text in texts)
