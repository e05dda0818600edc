"""The queues that a query reads, as the proxy tells of them.

While a broker starts anew its queues may not be there, for it is not registered then. So a queue
that the query has read, or is to read, is waited for before it counts as vanished.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from thin_client.errors import Refused
from thin_client.spark.bulk_client import PATIENCE_S, BulkClient
from thin_client.spark.offsets import Queue, QueueState
from thin_client.spark.option_values import names
from thin_client.spark.selection import Selection

_log = logging.getLogger("orderlane")

_NOT_FOUND = 404
#: How often to look whether a queue is there again.
LOOK_S = 1.0


class Queues:
    """Asks *client* about what *selection* names."""

    def __init__(
        self, client: BulkClient, selection: Selection, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._client = client
        self._selection = selection
        self._patience_s = patience_s
        self._at: dict[int, list[QueueState]] = {}
        self._given_up: set[Queue] = set()

    def states(self, *, known: Iterable[Queue] = ()) -> list[QueueState]:
        """What there is to read now. Those *known* are waited for, and may have vanished; of others
        that were named and are not there OptionError tells. Raises ClientError.
        """
        before = set(known)

        def ask() -> list[QueueState]:
            found = self._ranges({topic for topic, _ in before})
            self._selection.check_queues(found, known=before)
            return self._selection.of(found)

        return self._wait_for(set(filter(self._selection.wants, before)), ask)

    def at_time(self, timestamp_ms: int) -> list[QueueState]:
        """The same with the offsets at a time, which are asked for once: they cost the brokers."""
        if timestamp_ms not in self._at:
            self._at[timestamp_ms] = self._selection.of(self._ranges(set(), timestamp_ms))
        return self._at[timestamp_ms]

    def of(self, queues: Iterable[Queue]) -> list[QueueState]:
        """Those of *queues* that are there, or come back in time. Raises ClientError."""
        wanted = set(queues)
        topics = {topic for topic, _ in wanted}
        found = self._wait_for(wanted, lambda: self._of_topics(topics, gone=topics))
        return [state for state in found if state.queue in wanted]

    def _wait_for(
        self, wanted: set[Queue], ask: Callable[[], list[QueueState]]
    ) -> list[QueueState]:
        """What *ask* gives once all of *wanted* is there, or time is up: for none twice."""
        until_s = time.monotonic() + self._patience_s
        said = False
        while True:
            found = ask()
            there = {state.queue for state in found}
            self._given_up -= there
            away = wanted - there - self._given_up
            if not away:
                return found
            if time.monotonic() >= until_s:
                self._given_up |= away
                return found
            if not said:
                said = True
                places = names(f"{topic}/{qid}" for topic, qid in away)
                _log.warning("queues are not there, and waited for: %s", places)
            time.sleep(LOOK_S)

    def _ranges(self, known: set[str], timestamp_ms: int | None = None) -> list[QueueState]:
        topics = set(self._selection.named or self._fitting(known))
        return self._of_topics(topics, gone=known, timestamp_ms=timestamp_ms)

    def _fitting(self, known: set[str]) -> list[str]:
        """The topics that fit the pattern; of a group that lost one, those *known* before."""
        try:
            there: Iterable[str] = self._client.topics()
        except Refused as error:
            if error.code != _NOT_FOUND or not known:
                raise
            there = known
        return self._selection.topics(there)

    def _of_topics(
        self, topics: set[str], *, gone: set[str], timestamp_ms: int | None = None
    ) -> list[QueueState]:
        """All queues of *topics*; those of *gone* need not be there."""
        if not topics:
            return []
        try:
            return self._client.ranges(sorted(topics), timestamp_ms)
        except Refused as error:
            if error.code != _NOT_FOUND or not topics & gone:
                raise
        if len(topics) == 1:
            return []
        return [
            state
            for topic in sorted(topics)
            for state in self._of_topics({topic}, gone=gone, timestamp_ms=timestamp_ms)
        ]
