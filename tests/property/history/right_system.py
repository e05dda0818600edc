"""A random system that keeps every guarantee, as a history."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.support.histories import Story


@dataclass
class RightSystem:
    """One queue of six keys, one message per key at a time; with crashes, retries and expiries."""

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
        """Return True if an earlier message of its key is unfinished."""
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
