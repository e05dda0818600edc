"""The queues that a query reads, as the proxy tells of them."""

from __future__ import annotations

from collections.abc import Iterable

from thin_client.errors import Refused
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.offsets import Queue, QueueState
from thin_client.spark.selection import Selection

_NOT_FOUND = 404


class Queues:
    """Asks *client* about what *selection* names."""

    def __init__(self, client: BulkClient, selection: Selection) -> None:
        self._client = client
        self._selection = selection
        self._at: dict[int, list[QueueState]] = {}

    def states(self, *, known: Iterable[Queue] = ()) -> list[QueueState]:
        """What there is to read now. Those *known* may have vanished; of others that were named
        and are not there OptionError tells. Raises ClientError.
        """
        known = set(known)
        found = self._ranges({topic for topic, _ in known})
        self._selection.check_queues(found, known=known)
        return self._selection.of(found)

    def at_time(self, timestamp_ms: int) -> list[QueueState]:
        """The same with the offsets at a time, which are asked for once: they cost the brokers."""
        if timestamp_ms not in self._at:
            self._at[timestamp_ms] = self._selection.of(self._ranges(set(), timestamp_ms))
        return self._at[timestamp_ms]

    def of(self, topics: list[str]) -> list[QueueState]:
        """All queues of those of *topics* that are there."""
        if not topics:
            return []
        try:
            return self._client.ranges(topics)
        except Refused as error:
            if error.code != _NOT_FOUND:
                raise
        there = set(topics).intersection(self._client.topics())
        return self._client.ranges(there) if there else []

    def _ranges(self, known: set[str], timestamp_ms: int | None = None) -> list[QueueState]:
        named = self._selection.named
        if named:
            try:
                return self._client.ranges(named, timestamp_ms)
            except Refused as error:
                if error.code != _NOT_FOUND or not known:
                    raise
        there = self._client.topics()
        self._selection.check_topics(there, known=known)
        wanted = self._selection.topics(there)
        return self._client.ranges(wanted, timestamp_ms) if wanted else []
