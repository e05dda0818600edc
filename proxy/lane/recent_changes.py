"""The queues of a group that changed lately: the only ones with periodic work, as most are idle."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.core.pipeline.queue_pipeline import QueuePipeline

#: Time for which a queue counts as changed. Longer than any interval of periodic work.
RECENT_NS = 15_000_000_000


class RecentChanges:
    """Queues by the time of their last change, oldest first."""

    __slots__ = ("_changed_ns",)

    def __init__(self) -> None:
        self._changed_ns: dict[QueuePipeline, int] = {}

    def __len__(self) -> int:
        return len(self._changed_ns)

    def __contains__(self, pipeline: QueuePipeline) -> bool:
        return pipeline in self._changed_ns

    def note(self, pipeline: QueuePipeline, now_ns: int) -> None:
        """Note a change of *pipeline*, unless it is not owned any more: it would stay in memory."""
        if not pipeline.closed:
            self._changed_ns.pop(pipeline, None)
            self._changed_ns[pipeline] = now_ns

    def forget(self, pipeline: QueuePipeline) -> None:
        """Forget a queue that is not owned any more."""
        self._changed_ns.pop(pipeline, None)

    def since(self, now_ns: int) -> Iterable[QueuePipeline]:
        """Return the queues that changed within ``RECENT_NS``; forget the others."""
        while self._changed_ns:
            oldest = next(iter(self._changed_ns))
            if now_ns - self._changed_ns[oldest] < RECENT_NS:
                break
            del self._changed_ns[oldest]
        return tuple(self._changed_ns)
