"""The checker against random runs of a system that keeps all guarantees, or breaks one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.history.right_system import KEYS, MOVES, RightSystem
from tests.support.examples import examples
from tests.support.histories import LANE, Story


@given(KEYS, MOVES)
@settings(max_examples=examples(150), deadline=None)
def test_a_system_that_keeps_its_promises_is_clean(
    keys: list[str | None], moves: list[tuple[str, int]]
) -> None:
    system = RightSystem(keys)
    for move, number in moves:
        system.step(move, number)
    system.drain()
    report = system.story.report()
    assert report.clean, report.as_dict()


@given(KEYS, MOVES, st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_message_that_never_ends_is_missed(
    keys: list[str | None], moves: list[tuple[str, int]], data: st.DataObject
) -> None:
    system = RightSystem(keys)
    for move, number in moves:
        system.step(move, number)
    system.drain()
    lost = data.draw(st.integers(0, len(keys) - 1))
    story = system.story
    story.leave_out(
        lambda event: event.get("offset") == lost and event["e"] in ("finish", "handle_end")
    )
    assert "D1" in story.found()


@given(st.integers(2, 8), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_two_messages_of_a_key_that_change_places_are_seen(count: int, data: st.DataObject) -> None:
    order = list(range(count))
    first = data.draw(st.integers(0, count - 2))
    second = data.draw(st.integers(first + 1, count - 1))
    order[first], order[second] = order[second], order[first]
    story = Story()
    for offset in range(count):
        story.sent(offset)
    story.add("own+", **LANE, epoch=1, owner="p")
    assert "O1" in story.through(*order).found()
