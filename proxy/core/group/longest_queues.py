"""Queues of one topic by their longest ready chain, for the policy ``longest_chain``. Pure.

Choices alternate between the queue with the longest chain and the queue whose turn it is, so each
of n queues is among the next 2n. O(log n) per choice.
"""

from __future__ import annotations

from proxy.core.jobs.longest_first import LongestFirst
from proxy.core.pipeline.queue_pipeline import QueuePipeline


class LongestQueues:
    """The queues of one topic that have ready jobs and are in *turns*, the order of their turns.

    Caller: the group buffer, which owns *turns*.
    """

    __slots__ = ("_by_turn", "_chosen", "_lengths", "_turns")

    def __init__(self, turns: dict[QueuePipeline, None]) -> None:
        self._turns = turns
        self._lengths: LongestFirst[QueuePipeline] = LongestFirst()
        self._chosen: dict[QueuePipeline, None] = {}  # for the current answer, or the last one
        self._by_turn = False
        for pipeline in turns:
            self.note(pipeline)

    def note(self, pipeline: QueuePipeline) -> None:
        """Note that the ready jobs of *pipeline* have changed."""
        if pipeline in self._turns:
            self._lengths.put(pipeline, pipeline.longest_ready)
        else:
            self._lengths.remove(pipeline)
            self._chosen.pop(pipeline, None)

    def begin(self) -> None:
        """Begin another answer: each queue may be chosen again."""
        chosen, self._chosen = self._chosen, {}
        for pipeline in chosen:
            self.note(pipeline)

    def choose(self, *, most: int) -> tuple[QueuePipeline, int]:
        """Return a queue that was not chosen for this answer, and how many of *most* jobs it may
        give: if it was chosen for its longest chain, those that are at least as long as the longest
        one of the others.
        """
        by_turn, self._by_turn = self._by_turn, not self._by_turn
        pipeline = None if by_turn else self._lengths.pop()
        if pipeline is None:
            pipeline = next(iter(self._turns))
            self._lengths.remove(pipeline)
        elif (others := self._lengths.longest) > 0:
            most = min(most, max(1, pipeline.ready_from(others, most=most)))
        self._chosen[pipeline] = None
        return pipeline, most
