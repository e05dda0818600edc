"""The checker against random runs of a system that keeps every promise, or breaks one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.histories import LANE, Story


@dataclass
class RightSystem:
    """One queue of six keys, handled one message a key at a time; crashes, retries, expiries."""

    keys: list[str | None]
    story: Story = field(default_factory=Story)
    epoch: int = 1
    committed: int = 0
    finished: set[int] = field(default_factory=set)
    leased: dict[int, int] = field(default_factory=dict)  # offset → lease

    def __post_init__(self) -> None:
        for offset in range(len(self.keys)):
            self.story.sent(offset)
        self.story.own(1)

    def waits(self, offset: int) -> bool:
        """True if an earlier message of its key is unfinished."""
        key = self.keys[offset]
        return key is not None and any(
            self.keys[earlier] == key and earlier not in self.finished for earlier in range(offset)
        )

    def step(self, move: str, number: int) -> None:
        if move == "crash":
            self.epoch += 1
            self.story.own(self.epoch)
            self.leased.clear()
            self.finished = set(range(self.committed))
        elif move == "commit":
            self.committed = next(
                (o for o in range(len(self.keys)) if o not in self.finished), len(self.keys)
            )
            self.story.commit(self.committed)
        elif move == "deliver":
            ready = [
                offset
                for offset in range(len(self.keys))
                if offset not in self.finished | self.leased.keys() and not self.waits(offset)
            ]
            if ready:
                self.deliver(ready[number % len(ready)])
        elif self.leased:
            offset = sorted(self.leased)[number % len(self.leased)]
            self.settle(offset, self.leased.pop(offset), move)

    def deliver(self, offset: int) -> None:
        self.leased[offset] = lease = self.story.deliver(offset, order=self.keys[offset])
        self.story.handle_start(offset, lease, order=self.keys[offset])

    def settle(self, offset: int, lease: int, move: str) -> None:
        if move == "expire":
            self.story.expire(offset, lease)
            return
        self.story.handle_end(offset, lease, order=self.keys[offset], outcome=move)
        self.story.ack(offset, lease, outcome=move)
        if move == "ok":
            self.finished.add(offset)

    def drain(self) -> None:
        for offset, lease in sorted(self.leased.items()):
            self.settle(offset, lease, "ok")
        for offset in range(len(self.keys)):
            if offset not in self.finished:
                self.deliver(offset)
                self.settle(offset, self.story.events[-1]["lease"], "ok")


KEYS = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=12)
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "deliver", "ok", "ok", "retry", "expire", "crash", "commit"]),
        st.integers(0, 10),
    ),
    max_size=60,
)


@given(KEYS, MOVES)
@settings(max_examples=150, deadline=None)
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
@settings(max_examples=150, deadline=None)
def test_a_message_that_never_ends_is_missed(
    keys: list[str | None], moves: list[tuple[str, int]], data: st.DataObject
) -> None:
    system = RightSystem(keys)
    for move, number in moves:
        system.step(move, number)
    system.drain()
    lost = data.draw(st.integers(0, len(keys) - 1))
    story = system.story
    story.events = [
        event
        for event in story.events
        if event.get("offset") != lost or event["e"] not in ("finish", "handle_end")
    ]
    assert "D1" in story.found()


@given(st.integers(2, 8), st.data())
@settings(max_examples=100, deadline=None)
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
