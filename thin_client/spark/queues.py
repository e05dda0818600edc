"""The states of a query's queues, as reported by the proxy.

While a broker restarts it is not registered, and its queues may be missing. A queue that the query
has read or is about to read is therefore awaited before it counts as deleted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from thin_client.errors import Refused
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.offsets import Queue, QueueState, flat
from thin_client.spark.option_values import names
from thin_client.spark.planning import without_queue
from thin_client.spark.proxy_calls import PATIENCE_S
from thin_client.spark.selection import Selection

_log = logging.getLogger("orderlane")

_NOT_FOUND = 404
#: Interval of checks for missing queues.
LOOK_S = 1.0


class Queues:
    """Requests the states of the queues of *selection* from *client*."""

    def __init__(
        self, client: BulkClient, selection: Selection, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._client = client
        self._selection = selection
        self._patience_s = patience_s
        self._at: dict[int, list[QueueState]] = {}
        self._given_up: set[Queue] = set()

    def states(self, *, since: Mapping[str, Mapping[str, int]] | None = None) -> list[QueueState]:
        """Return the selected queues. Missing queues of *since*, an offset of the stream, are
        awaited, and then left out; not awaited if their topics were created again without them.

        Raises OptionError for another topic or queue that is named but missing, and ClientError.
        """
        start = since or {}
        before = set(flat(start))

        def ask() -> list[QueueState]:
            found = self._ranges({topic for topic, _ in before})
            self._selection.check_queues(found, known=before)
            return self._selection.of(found)

        wanted = set(filter(self._selection.wants, before))
        return self._wait_for(wanted, ask, lambda found: without_queue(start, found))

    def at_time(self, timestamp_ms: int) -> list[QueueState]:
        """Return the states with the offsets at a time, cached: brokers have to search for them."""
        if timestamp_ms not in self._at:
            self._at[timestamp_ms] = self._selection.of(self._ranges(set(), timestamp_ms))
        return self._at[timestamp_ms]

    def of(self, queues: Iterable[Queue]) -> list[QueueState]:
        """Return the states of *queues*, except those that stay missing. Raises ClientError."""
        wanted = set(queues)
        topics = {topic for topic, _ in wanted}
        found = self._wait_for(wanted, lambda: self._of_topics(topics, gone=topics))
        return [state for state in found if state.queue in wanted]

    def _wait_for(
        self,
        wanted: set[Queue],
        ask: Callable[[], list[QueueState]],
        gone: Callable[[list[QueueState]], set[Queue]] = lambda _: set(),
    ) -> list[QueueState]:
        """Call *ask* until it returns all of *wanted*, except those *gone*, or time is up; await no
        queue twice. Raises Refused if the group is unknown: its queues are then not deleted.
        """
        until_s = time.monotonic() + self._patience_s
        said = False
        while True:
            found = ask()
            there = {state.queue for state in found}
            self._given_up -= there
            away = wanted - there - self._given_up - gone(found)
            if not away:
                return found
            if time.monotonic() >= until_s:
                self._client.check_group()
                self._given_up |= away
                return found
            if not said:
                said = True
                places = names(f"{topic}/{qid}" for topic, qid in away)
                _log.warning("waiting for missing queues: %s", places)
            time.sleep(LOOK_S)

    def _ranges(self, known: set[str], timestamp_ms: int | None = None) -> list[QueueState]:
        if self._selection.named:
            topics = set(self._selection.named)
            return self._of_topics(topics, gone=known, timestamp_ms=timestamp_ms)
        # A topic may be deleted between the two requests.
        there = set(self._selection.topics(self._client.topics()))
        return self._of_topics(there, gone=there, timestamp_ms=timestamp_ms)

    def _of_topics(
        self, topics: set[str], *, gone: set[str], timestamp_ms: int | None = None
    ) -> list[QueueState]:
        """Return all queues of *topics*; topics of *gone* may be missing."""
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
