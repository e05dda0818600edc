"""What a query can be told, checked before any job starts. Pure.

Every value arrives as a string and every name in small letters. What is unknown, contradictory or
would do nothing is refused with ``OptionError``: one sentence that says what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from thin_client.addresses import parse_addresses
from thin_client.servers import Tls
from thin_client.spark.offsets import (
    EARLIEST,
    LATEST,
    Position,
    Strategy,
    flat,
    from_json,
)
from thin_client.spark.option_table import (
    OPTIONS,
    READ,
    STREAM,
    WRITE,
    WRITE_STREAM,
    Option,
    check_names,
)
from thin_client.spark.option_values import (
    OptionError,
    boolean,
    duration_ms,
    json_object,
    number,
    refusal,
    size_bytes,
    whole,
)
from thin_client.spark.selection import Selection

__all__ = ["OPTIONS", "Connecting", "Option", "OptionError", "ReadOptions", "WriteOptions"]

T = TypeVar("T")

_OFFSETS_FORM = '{"orders": {"broker-a_0": 23, "broker-a_1": -2}}'
_TIMES_FORM = '{"orders": {"broker-a_0": 1700000000000}}'
_ASSIGN_FORM = '{"orders": ["broker-a_0", "broker-a_1"]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """How to reach a proxy, and as who; it can be pickled. *group* is empty for writers."""

    servers: tuple[str, ...]
    group: str = ""
    token: str | None = None
    tls: Tls | None = None
    request_timeout_s: float = 10.0
    consumer_id: str = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read, for a batch or for a stream; the meaning of each stands in ``OPTIONS``."""

    connecting: Connecting
    selection: Selection
    starting: Position
    ending: Position
    strategy: Strategy = "error"
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    include_headers: bool = False
    filter_pushdown: bool = False
    batch_bytes: int = 4 << 20

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Read what Spark was told. Raises OptionError."""
        given = _Given(options, STREAM if streaming else READ)
        starting = _starting(given, LATEST if streaming else EARLIEST)
        ending = _ending(given)
        if not streaming:
            _check_batch(starting, ending)
        selection = _selection(given)
        for position in (starting, ending):
            _check_topics(position, selection)
        most = given.take("maxOffsetsPerTrigger", _positive)
        least = given.take("minOffsetsPerTrigger", _positive)
        delay_ms = given.take("maxTriggerDelay", duration_ms)
        if most is not None and least is not None and least > most:
            raise OptionError(
                f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger {most}: "
                "expected a minimum that is not above the maximum"
            )
        if delay_ms is not None and least is None:
            raise OptionError(
                "maxTriggerDelay came without minOffsetsPerTrigger, which it limits: "
                "expected both, or neither"
            )
        return cls(
            connecting=_connecting(given, group=given.need("group", "the consumer group")),
            selection=selection,
            starting=starting,
            ending=ending,
            strategy=_strategy(given, starting),
            fail_on_data_loss=given.get("failOnDataLoss", boolean, True),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=15 * 60_000 if delay_ms is None else delay_ms,
            min_partitions=given.take("minPartitions", _positive),
            include_headers=given.get("includeHeaders", boolean, False),
            filter_pushdown=given.get("filterPushdown", boolean, False),
            batch_bytes=given.get("batchBytes", _batch_bytes, 4 << 20),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How to write. *topic* is None where each row names its own."""

    connecting: Connecting
    topic: str | None = None
    batch_size: int = 500
    max_rows_per_second: float | None = None
    batch_id_property: str = "sparkBatchId"

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """Read what Spark was told. Raises OptionError."""
        given = _Given(options, WRITE_STREAM if streaming else WRITE)
        return cls(
            connecting=_connecting(given, group=""),
            topic=given.take("topic", _text),
            batch_size=given.get("batchSize", _batch_size, 500),
            max_rows_per_second=given.take("maxRowsPerSecond", number),
            batch_id_property=given.get("batchIdProperty", _text, "sparkBatchId"),
        )


class _Given:
    """The options of one query, whose names are known and in their place."""

    def __init__(self, options: Mapping[str, str], where: str) -> None:
        check_names(options, where=where)
        self._texts = {name.lower(): text for name, text in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def take(self, name: str, read: Callable[[str, str], T]) -> T | None:
        """The value as *read* understands it; None if it was left out."""
        text = self._texts.get(name.lower())
        return None if text is None else read(name, text)

    def get(self, name: str, read: Callable[[str, str], T], default: T) -> T:
        """The same with a default."""
        found = self.take(name, read)
        return default if found is None else found

    def need(self, name: str, what: str) -> str:
        """A text that has to be there."""
        found = self.take(name, _text)
        if found is None:
            raise OptionError(f"{name} is missing: expected {what}, as option({name!r}, ...)")
        return found

    def one_of(self, *names: str) -> str | None:
        """Which of the options, that exclude each other, was given."""
        found = [name for name in names if name in self]
        if len(found) > 1:
            raise OptionError(
                f"{' and '.join(found)} contradict each other: expected one of them only"
            )
        return found[0] if found else None


def _text(option: str, text: str) -> str:
    if not text.strip():
        raise refusal(option, text, "a text that is not empty, or to leave it out")
    return text.strip()


def _positive(option: str, text: str) -> int:
    return whole(option, text, least=1)


def _time_ms(option: str, text: str) -> int:
    try:
        return whole(option, text, least=0)
    except OptionError:
        raise refusal(option, text, "milliseconds since 1970, as in 1700000000000") from None


def _batch_bytes(option: str, text: str) -> int:
    return size_bytes(option, text, least=64 << 10, most=64 << 20)


def _batch_size(option: str, text: str) -> int:
    return whole(option, text, least=1, most=10_000)


def _connecting(given: _Given, *, group: str) -> Connecting:
    servers = given.need("servers", "the addresses of proxies")
    try:
        addresses = parse_addresses(servers)
        tls = _tls(given)
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(f"servers: {error}") from None
    timeout_ms = given.get("requestTimeout", duration_ms, 10_000)
    return Connecting(
        servers=tuple(str(address) for address in addresses),
        group=group,
        token=given.take("token", _text),
        tls=tls,
        request_timeout_s=timeout_ms / 1000,
        consumer_id=given.get("consumerId", _text, "spark"),
    )


def _tls(given: _Given) -> Tls | None:
    files = ("tlsCa", "tlsCertificate", "tlsKey", "tlsServerName")
    if not given.get("tls", boolean, False):
        for name in files:
            if name in given:
                raise OptionError(f"{name} counts with TLS only: expected tls true beside it")
        return None
    ca, certificate, key, server_name = (given.take(name, _text) for name in files)
    tls = Tls(ca=ca, certificate=certificate, key=key, server_name=server_name)
    try:
        _ = tls.context
    except ValueError as error:
        raise OptionError(str(error)) from None
    return tls


def _selection(given: _Given) -> Selection:
    which = given.one_of("subscribe", "subscribePattern", "assign")
    if which is None:
        raise OptionError(
            "nothing says what to read: expected one of subscribe, subscribePattern and assign"
        )
    if which == "subscribe":
        topics = given.need(which, "topics").split(",")
        if not all(topic.strip() for topic in topics):
            raise refusal(which, ",".join(topics), "topics separated by commas")
        return Selection(subscribe=tuple(sorted({topic.strip() for topic in topics})))
    if which == "subscribePattern":
        pattern = given.need(which, "a pattern")
        try:
            re.compile(pattern)
        except re.error as error:
            raise refusal(
                which, pattern, f"a regular expression, as in orders-.* ({error})"
            ) from None
        return Selection(pattern=pattern)
    return Selection(assign=_assigned(given.need(which, "queues")))


def _assigned(text: str) -> dict[str, tuple[str, ...]]:
    found = json_object("assign", text, form=_ASSIGN_FORM)
    for topic, qids in found.items():
        if not isinstance(qids, list) or not qids or not all(map(_is_name, qids)):
            raise OptionError(
                f"assign has {qids!r} for the topic {topic!r}: "
                f"expected a list of queues, as in {_ASSIGN_FORM}"
            )
    return {topic: tuple(sorted(set(qids))) for topic, qids in sorted(found.items())}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _starting(given: _Given, default: int) -> Position:
    return _position(
        given,
        ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        default=Position(default, option="startingOffsets"),
    )


def _ending(given: _Given) -> Position:
    return _position(
        given,
        ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        default=Position(LATEST, option="endingOffsets"),
    )


def _position(given: _Given, options: tuple[str, str, str], *, default: Position) -> Position:
    which = given.one_of(*options)
    if which is None:
        return default
    text = given.need(which, "a position")
    if which == options[1]:
        return Position(_time_ms(which, text), by_time=True, option=which)
    if which == options[2]:
        times = from_json(text, option=which, form=_TIMES_FORM, least=0)
        return Position(times, by_time=True, option=which)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        return Position(words[text.lower()], option=which)
    if not text.startswith("{"):
        raise refusal(which, text, f"earliest, latest, or JSON as in {_OFFSETS_FORM}")
    offsets = from_json(text, option=which, form=_OFFSETS_FORM, least=EARLIEST)
    return Position(offsets, option=which)


def _check_batch(starting: Position, ending: Position) -> None:
    """A batch begins where something is, and ends behind it."""
    for position, wrong, what in (
        (starting, LATEST, "a batch cannot begin at the latest offset: expected earliest"),
        (ending, EARLIEST, "a batch cannot end at the earliest offset: expected latest"),
    ):
        if position.by_time:
            continue
        if position.value == wrong:
            raise OptionError(f"{position.option}: {what}, or JSON as in {_OFFSETS_FORM}")
        if not isinstance(position.value, int):
            for (topic, qid), offset in flat(position.value).items():
                if offset == wrong:
                    raise OptionError(
                        f"{position.option} has {offset} for the queue {qid!r} of {topic!r}: "
                        f"{what} ({EARLIEST if wrong == LATEST else LATEST}), or an offset"
                    )
    if starting.by_time == ending.by_time:
        _check_order(starting, ending)


def _check_order(starting: Position, ending: Position) -> None:
    """Nothing ends before it begins, as far as both are told."""
    queues = {
        queue
        for each in (starting, ending)
        if not isinstance(each.value, int)
        for queue in flat(each.value)
    }
    for queue in sorted(queues) or [("", "")]:
        try:
            first, last = starting.at(queue), ending.at(queue)
        except OptionError:
            continue  # which of the two does not name a queue is seen once the queues are known
        if 0 <= last < first:
            place = f" for the queue {queue[1]!r} of {queue[0]!r}" if queues else ""
            raise OptionError(
                f"{starting.option} is {first}{place} and {ending.option} {last}: "
                "expected an end that is not before the start"
            )


def _check_topics(position: Position, selection: Selection) -> None:
    """JSON may name only what is read; what is not there is seen when the queues are known."""
    if isinstance(position.value, int):
        return
    for topic, qid in flat(position.value):
        if not selection.wants((topic, qid)):
            raise OptionError(
                f"{position.option} names the queue {qid!r} of the topic {topic!r}, which is not "
                "among what is read: expected the queues of subscribe, subscribePattern or assign"
            )


def _strategy(given: _Given, starting: Position) -> Strategy:
    option = "startingOffsetsByTimestampStrategy"
    found = given.take(option, _strategy_word)
    if found is not None and not starting.by_time:
        raise OptionError(
            f"{option} counts with startingTimestamp or startingOffsetsByTimestamp only: "
            "expected one of them beside it"
        )
    return found or "error"


def _strategy_word(option: str, text: str) -> Literal["error", "latest"]:
    word = text.strip().lower()
    if word == "error":
        return "error"
    if word == "latest":
        return "latest"
    raise refusal(option, text, "error or latest")
