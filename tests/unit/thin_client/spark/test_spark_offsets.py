from __future__ import annotations

from typing import Any

import pytest

from thin_client.spark.offsets import (
    EARLIEST,
    LATEST,
    Position,
    QueueState,
    Slice,
    ending,
    ends,
    from_json,
    sorted_offsets,
    starting,
    to_json,
)
from thin_client.spark.option_values import OptionError
from thin_client.spark.selection import Selection

A0 = QueueState("a", "x_0", 10, 20)
A1 = QueueState("a", "x_1", 0, 0)
B0 = QueueState("b", "x_0", 5, 9)
STATES = [A0, A1, B0]
ALL = {"a": {"x_0": 12, "x_1": LATEST}, "b": {"x_0": EARLIEST}}


def nothing_at(_time: int) -> list[QueueState]:
    raise AssertionError("no time was asked for")


def at(times: dict[int, tuple[int, int, int]]) -> object:
    def found(time: int) -> list[QueueState]:
        return [
            QueueState(each.topic, each.qid, each.begin, each.end, at=offset)
            for each, offset in zip(STATES, times[time], strict=True)
        ]

    return found


@pytest.mark.parametrize("resolve", [starting, ending])
def test_a_queue_that_left_before_a_time_was_looked_up_does_not_begin_or_end_at_its_end(
    resolve: Any,
) -> None:
    """With the strategy ``latest``, its messages since that time would be skipped."""
    position = Position(17, by_time=True, option="startingTimestamp")
    given = {"strategy": "latest"} if resolve is starting else {}
    left = [QueueState(*each.queue, each.begin, each.end, at=each.begin) for each in (A0, A1)]
    with pytest.raises(OptionError, match="the queue 'x_0' of 'b' went missing before that time"):
        resolve(position, STATES, at_time=lambda _: left, **given)


def test_texts_are_sorted_so_that_equal_positions_are_no_news() -> None:
    assert to_json({"b": {"x_0": 1}, "a": {"x_1": 2, "x_0": 3}}) == (
        '{"a":{"x_0":3,"x_1":2},"b":{"x_0":1}}'
    )
    assert list(ends([B0, A1, A0])) == ["a", "b"]
    assert sorted_offsets([]) == {}


def test_a_slice_says_what_it_is() -> None:
    assert str(Slice("a", "x_0", 3, 5)) == "a/x_0 [3, 5)"
    assert Slice("a", "x_0", 3, 5).size == 2


def test_a_query_begins_at_the_beginning_or_the_end() -> None:
    first = starting(Position(EARLIEST), STATES, at_time=nothing_at)
    assert first == {"a": {"x_0": 10, "x_1": 0}, "b": {"x_0": 5}}
    assert starting(Position(LATEST), STATES, at_time=nothing_at) == ends(STATES)
    assert ending(Position(LATEST), STATES, at_time=nothing_at) == ends(STATES)


def test_offsets_of_each_queue_may_be_numbers_or_earliest_or_latest() -> None:
    found = starting(Position(ALL), STATES, at_time=nothing_at)
    assert found == {"a": {"x_0": 12, "x_1": 0}, "b": {"x_0": 5}}


def test_an_offset_before_the_oldest_message_stays_for_planning_to_judge() -> None:
    position = Position({**ALL, "b": {"x_0": 1}})
    assert starting(position, STATES, at_time=nothing_at)["b"] == {"x_0": 1}


def test_a_query_may_begin_at_the_end_by_its_number() -> None:
    position = Position({**ALL, "b": {"x_0": 9}})
    assert starting(position, STATES, at_time=nothing_at)["b"] == {"x_0": 9}


def test_every_queue_has_to_be_named() -> None:
    position = Position({"a": ALL["a"]}, option="startingOffsets")
    with pytest.raises(OptionError) as caught:
        starting(position, STATES, at_time=nothing_at)
    assert str(caught.value) == (
        "startingOffsets does not name the queue 'x_0' of the topic 'b': "
        "add every queue that the query reads (-2 for earliest, -1 for latest)"
    )


def test_queues_that_are_not_there_cannot_be_named() -> None:
    more = Position({**ALL, "b": {"x_0": 5, "x_7": 1}}, option="endingOffsets")
    with pytest.raises(OptionError) as caught:
        ending(more, STATES, at_time=nothing_at)
    assert str(caught.value) == (
        "endingOffsets names the queue 'x_7' of the topic 'b', which the query does not read: "
        "it reads 'x_0'"
    )
    topic = Position({**ALL, "c": {"x_0": 5}}, option="startingOffsets")
    with pytest.raises(
        OptionError, match="names the topic 'c', which the query does not read: it reads 'a'"
    ):
        starting(topic, STATES, at_time=nothing_at)


@pytest.mark.parametrize("resolve", [starting, ending])
def test_no_offset_lies_behind_the_end(resolve: object) -> None:
    position = Position({**ALL, "b": {"x_0": 10}}, option="startingOffsets")
    with pytest.raises(OptionError) as caught:
        resolve(position, STATES, at_time=nothing_at)  # type: ignore[operator]
    assert str(caught.value) == (
        "startingOffsets has 10 for the queue 'x_0' of 'b', which ends at 9: "
        "expected at most 9, or -1 for latest"
    )


def test_a_time_stands_for_the_first_message_since() -> None:
    position = Position(1000, by_time=True, option="startingTimestamp")
    times = at({1000: (15, 0, 5)})
    found = starting(position, STATES, at_time=times, strategy="latest")  # type: ignore[arg-type]
    assert found == {"a": {"x_0": 15, "x_1": 0}, "b": {"x_0": 5}}


def test_each_queue_may_have_a_time_of_its_own() -> None:
    value = {"a": {"x_0": 1000, "x_1": 2000}, "b": {"x_0": 1000}}
    position = Position(value, by_time=True, option="endingOffsetsByTimestamp")
    assert position.times() == [1000, 2000]
    times = at({1000: (11, 9, 6), 2000: (12, 0, 7)})
    found = ending(position, STATES, at_time=times)  # type: ignore[arg-type]
    assert found == {"a": {"x_0": 11, "x_1": 0}, "b": {"x_0": 6}}


def test_a_start_after_the_last_message_is_refused_unless_latest_will_do() -> None:
    position = Position(1000, by_time=True, option="startingTimestamp")
    times = at({1000: (15, 0, 9)})
    with pytest.raises(OptionError) as caught:
        starting(position, STATES, at_time=times)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "startingTimestamp is 1000 for the queue 'x_1' of 'a', where no message was stored since: "
        "set an earlier time in milliseconds, or startingOffsetsByTimestampStrategy to latest"
    )
    assert starting(position, STATES, at_time=times, strategy="latest")["b"] == {"x_0": 9}  # type: ignore[arg-type]
    assert ending(position, STATES, at_time=times)["b"] == {"x_0": 9}  # type: ignore[arg-type]


def test_messages_that_come_between_two_questions_do_not_move_the_end() -> None:
    position = Position(1000, by_time=True, option="startingTimestamp")
    times = at({1000: (25, 3, 11)})
    found = starting(position, STATES, at_time=times, strategy="latest")  # type: ignore[arg-type]
    assert found == ends(STATES)


def test_positions_are_read_as_they_are_written() -> None:
    text = to_json({"a": {"x_0": 2**63 - 1, "x_1": -2}})
    assert to_json(from_json(text, option="", form="", least=-2)) == text


# ---- what is read -------------------------------------------------------------------------------


def test_topics_are_read_by_name() -> None:
    selection = Selection(subscribe=("a", "b"))
    assert selection.topics(["c", "b", "a"]) == ["a", "b"]
    assert selection.of([B0, QueueState("c", "x_0", 0, 1), A0]) == [A0, B0]
    with pytest.raises(OptionError) as caught:
        selection.check_topics(["a", "c"])
    assert str(caught.value) == (
        "subscribe names the topic 'b', which the group does not have: its topics are 'a', 'c'"
    )
    selection.check_topics(["a", "c"], known={"b": {"x_0": 5}})


def test_a_pattern_fits_whole_names_and_may_fit_none() -> None:
    selection = Selection(pattern="orders-.*|sales")
    assert selection.topics(["orders-1", "new-orders-1", "sales", "sales2"]) == [
        "orders-1",
        "sales",
    ]
    selection.check_topics([])
    selection.check_queues([])


def test_single_queues_are_read_by_assignment() -> None:
    selection = Selection(assign={"a": ("x_1",), "b": ("x_0", "x_3")})
    assert selection.topics(["a", "b", "c"]) == ["a", "b"]
    assert selection.of(STATES) == [A1, B0]
    with pytest.raises(OptionError) as caught:
        selection.check_queues(STATES)
    assert str(caught.value) == (
        "assign names the queue 'x_3' of the topic 'b', which does not exist: its queues are 'x_0'"
    )
    selection.check_queues(STATES, known={("b", "x_3")})
    with pytest.raises(OptionError, match="assign names the topic 'b', which the group does not"):
        selection.check_topics(["a"])


class _Name(str):
    """A name that counts its comparisons, as the proxy reports it."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


@pytest.mark.parametrize("by_name", [True, False])
def test_many_topics_are_each_looked_up_once(by_name: bool) -> None:
    """Planning compared each topic with each queue: a second with 1,000 topics, at each trigger."""
    topics = [f"t{number}" for number in range(200)]
    states = [QueueState(_Name(topic), "x_0", 0, 1) for topic in topics]
    if by_name:
        selection = Selection(subscribe=tuple(topics))
    else:
        selection = Selection(assign=dict.fromkeys(topics, ("x_0",)))
    position = Position({topic: {"x_0": 0} for topic in topics}, option="startingOffsets")
    _Name.compared = 0
    selection.check_queues(states)
    assert len(selection.of(states)) == len(topics)
    assert len(starting(position, states, at_time=nothing_at)) == len(topics)
    assert _Name.compared < 60 * len(topics)
