"""A sample of a topic's messages: by which key each has its place, for each candidate. Pure.

What a report counts and what a simulation replays come from here, so both speak of the same
messages. Of a message stay its place, its time and its keys; bodies are looked at once and let go:
about 16 bytes a message, 16 more for each candidate, and each distinct key once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.core.keys.kinds.registry import look_each
from proxy.core.keys.order_key import Keyed, Looked, MissingKey
from proxy.tuning.key_profile import KeyProfile, Windows
from proxy.tuning.report import TuningReport, report_of


@dataclass(slots=True)
class QueueSample:
    """Messages of one queue, in their order. ``keys`` has a list for each candidate."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    stored_ms: array[int] = field(default_factory=lambda: array("q"))
    keys: list[list[bytes | None]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)


class Sample:
    """The messages that were added, each queue's by rising offset."""

    def __init__(self, candidates: Iterable[str], *, windows: Windows | None = None) -> None:
        """*candidates* are rules as in the settings. Raises ValueError as ``KeyProfile`` does."""
        self.profile = KeyProfile(candidates, windows=windows)
        self.queues: dict[str, QueueSample] = {}
        #: Each key once, by candidate: a sample of a million messages has few.
        self._known: list[dict[Looked, Looked]] = [{} for _ in self.candidates]

    @property
    def candidates(self) -> tuple[str, ...]:
        """As they were named."""
        return self.profile.candidates

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    def add(self, message: Keyed, *, queue: str, offset: int, stored_ms: int) -> None:
        """*message* stands at *offset* of *queue* since *stored_ms* (since 1970)."""
        looked = [
            known.setdefault(each, each)
            for known, each in zip(self._known, look_each(self.profile.rules, message), strict=True)
        ]
        self.profile.count(looked, queue=queue, offset=offset, stored_ms=stored_ms)
        of_queue = self.queues.get(queue)
        if of_queue is None:
            of_queue = self.queues[queue] = QueueSample(keys=[[] for _ in self.candidates])
        of_queue.offsets.append(offset)
        of_queue.stored_ms.append(stored_ms)
        for column, (key, _) in zip(of_queue.keys, looked, strict=True):
            column.append(key)

    def report(
        self,
        *,
        source: str,
        workers: int,
        missing: MissingKey = MissingKey.BY_QUEUE,
        hottest: int = 20,
    ) -> TuningReport:
        """What its counts say of the candidates; *source* is what was read, in words."""
        tallies = self.profile.tallies(missing=missing, hottest=hottest)
        return report_of(
            tallies,
            source=source,
            windows=self.profile.windows,
            workers=workers,
            missing=missing,
        )
