"""Parsing of the options for start and end positions. Pure."""

from __future__ import annotations

from typing import Literal

from thin_client.spark.offsets import EARLIEST, LATEST, Position, Strategy, flat, from_json
from thin_client.spark.option_given import Given
from thin_client.spark.option_values import OptionError, refusal, time_ms
from thin_client.spark.selection import Selection

_OFFSETS_FORM = '{"orders": {"broker-a_0": 23, "broker-a_1": -2}}'
_TIMES_FORM = '{"orders": {"broker-a_0": 1700000000000}}'
#: The same with Kafka's names.
_OFFSETS_BY_NUMBER = '{"orders": {"0": 23, "1": -2}}'
_TIMES_BY_NUMBER = '{"orders": {"0": 1700000000000}}'


def starting(given: Given, default: int) -> Position:
    """Return the start position."""
    return _position(
        given,
        ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        default=Position(default, option="startingOffsets"),
    )


def ending(given: Given) -> Position:
    """Return the end position."""
    return _position(
        given,
        ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        default=Position(LATEST, option="endingOffsets"),
    )


def _position(given: Given, options: tuple[str, str, str], *, default: Position) -> Position:
    which, numbers = given.one_of(*options), given.kafka_names
    if which is None:
        return default
    text = given.need(which, "a position")
    if which == options[1]:
        return Position(time_ms(which, text), by_time=True, option=which)
    if which == options[2]:
        form = _TIMES_BY_NUMBER if numbers else _TIMES_FORM
        times = from_json(text, option=which, form=form, least=0, numbers=numbers)
        return Position(times, by_time=True, option=which)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        return Position(words[text.lower()], option=which)
    form = _OFFSETS_BY_NUMBER if numbers else _OFFSETS_FORM
    if not text.startswith("{"):
        raise refusal(which, text, f"earliest, latest, or JSON as in {form}")
    offsets = from_json(text, option=which, form=form, least=EARLIEST, numbers=numbers)
    return Position(offsets, option=which)


def check_batch(starting: Position, ending: Position) -> None:
    """Raise OptionError if a batch starts at the latest offset, ends at the earliest one, or ends
    before its start.
    """
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
    """Raise OptionError for an end before the start, where both have the same unit."""
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
            continue  # a queue that one of them does not name is reported once queues are known
        if 0 <= last < first:
            place = f" for the queue {queue[1]!r} of {queue[0]!r}" if queues else ""
            raise OptionError(
                f"{starting.option} is {first}{place} and {ending.option} {last}: "
                "set an end at or after the start"
            )


def check_topics(position: Position, selection: Selection) -> None:
    """Raise OptionError for a topic or queue that the query does not read.

    Whether it exists is checked once the queues are known.
    """
    if isinstance(position.value, int):
        return
    for topic, qid in flat(position.value):
        if not selection.wants((topic, qid)):
            raise OptionError(
                f"{position.option} names the queue {qid!r} of the topic {topic!r}, which the "
                "query does not read: name queues of subscribe, subscribePattern or assign"
            )


def strategy(given: Given, starting: Position) -> Strategy:
    """Return how to treat a queue without messages since its start time."""
    option = "startingOffsetsByTimestampStrategy"
    found = given.take(option, _strategy_word)
    if found is not None and not starting.by_time:
        raise OptionError(
            f"{option} applies only with startingTimestamp or startingOffsetsByTimestamp: "
            "set one of them too"
        )
    return found or "error"


def _strategy_word(option: str, text: str) -> Literal["error", "latest"]:
    word = text.strip().lower()
    if word == "error":
        return "error"
    if word == "latest":
        return "latest"
    raise refusal(option, text, "error or latest")
