"""A sample of a topic's messages with the order keys of all candidates. Pure.

Reports and simulations both use it, so they describe the same messages. Positions, times and keys
are kept, bodies are not: about 16 bytes per message, 16 more per candidate, and each distinct key
once.
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
    """Messages of one queue, in order. ``keys`` has one list per candidate."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    stored_ms: array[int] = field(default_factory=lambda: array("q"))
    keys: list[list[bytes | None]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)


class Sample:
    """The added messages, by queue in ascending offsets."""

    def __init__(self, candidates: Iterable[str], *, windows: Windows | None = None) -> None:
        """*candidates* are rules as in the settings. Raises ValueError like ``KeyProfile``."""
        self.profile = KeyProfile(candidates, windows=windows)
        self.queues: dict[str, QueueSample] = {}
        #: Each distinct key once, by candidate: samples have few.
        self._known: list[dict[Looked, Looked]] = [{} for _ in self.candidates]

    @property
    def candidates(self) -> tuple[str, ...]:
        """Candidates in the given order."""
        return self.profile.candidates

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    def add(self, message: Keyed, *, queue: str, offset: int, stored_ms: int) -> None:
        """Add *message*, stored at *offset* of *queue* at *stored_ms* (since 1970)."""
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
        """Return the report on the candidates; *source* describes the messages."""
        tallies = self.profile.tallies(missing=missing, hottest=hottest)
        return report_of(
            tallies,
            source=source,
            windows=self.profile.windows,
            workers=workers,
            missing=missing,
        )
