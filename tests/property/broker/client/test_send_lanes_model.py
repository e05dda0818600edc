"""SendLanes against a model that scans all requests each time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker_core.client.send_lanes import SendLanes, Turn
from tests.support.examples import examples

KEYS = st.sets(st.sampled_from("abcd"), max_size=3)


@dataclass(eq=False)
class Modelled:
    turn: Turn
    keys: set[str]
    overtaken: set[str] = field(default_factory=set)
    may_go: bool = False

    @property
    def lanes(self) -> set[str]:
        return self.keys - self.overtaken


@settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
class Lanes(RuleBasedStateMachine):
    """A list of turns in order of request; a scan of all finds those that may go."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = SendLanes()
        self.queued: list[Modelled] = []

    @rule(keys=KEYS)
    def enter(self, keys: set[str]) -> None:
        self.queued.append(Modelled(self.lanes.enter(keys), keys))
        self.look()

    @precondition(lambda self: self.queued)
    @rule(data=st.data(), failed=KEYS)
    def leave(self, data: st.DataObject, failed: set[str]) -> None:
        """End a turn that went, or gave up; some of its keys failed."""
        index = data.draw(st.integers(0, len(self.queued) - 1))
        gone = self.queued[index]
        before = {id(each.turn) for each in self.queued if each.may_go}
        for each in self.queued[index + 1 :]:
            each.overtaken |= gone.lanes & failed & each.keys
        del self.queued[index]
        freed = self.lanes.leave(gone.turn, failed=failed)
        self.look()
        now = {id(each.turn) for each in self.queued if each.may_go}
        assert {id(turn) for turn in freed} == now - before
        assert len(freed) == len(now - before)

    def look(self) -> None:
        taken: set[str] = set()
        for each in self.queued:
            each.may_go = not each.lanes & taken
            taken |= each.lanes

    @invariant()
    def both_agree(self) -> None:
        for each in self.queued:
            assert each.turn.may_go == each.may_go
            assert each.turn.overtaken == each.overtaken
        assert len(self.lanes) == len(set().union(*(each.lanes for each in self.queued)))


TestLanes = Lanes.TestCase
