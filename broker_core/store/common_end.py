"""Search for the common end of two logs: the first byte after their common messages.

A message contains its position, the address of the broker that wrote it and the time. Two logs with
the same message at the same position are therefore equal up to it, and one comparison proves all
earlier messages. The searching side offers probes of its own log, learns which of them the other
log has, and offers closer ones between the last match and the first mismatch. Pure except for
reading.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from broker_core.errors import StoreError
from broker_core.store.commit_log import CommitLog
from broker_core.store.copying import places_of
from broker_core.store.log_scan import LogScan, LogView

#: Probes in one question.
MAX_PROBES = 256


class Probe(NamedTuple):
    """One message of a log: its *offset*, *size* and CRC-32."""

    offset: int
    size: int
    crc: int

    @property
    def end(self) -> int:
        """Start of the next message, or of a filler."""
        return self.offset + self.size


def first_probes(log: CommitLog) -> list[Probe]:
    """Return the last message of the log and the first of each newest segment; ascending."""
    starts = [segment.start for segment in log.segments if segment.start < log.end_offset]
    probes = [
        _probe(log, place)
        for start in starts
        for place in islice(_legible(log, start, log.end_offset), 1)
    ]
    if starts:
        last = None
        for place in _legible(log, starts[-1], log.end_offset):
            last = place
        if last is not None and last[0] != probes[-1].offset:
            probes.append(_probe(log, last))
    return probes[-MAX_PROBES:]


def closer_probes(log: CommitLog, after: Probe | None, before: int) -> list[Probe]:
    """Return evenly spaced messages after *after* (None: from the first on) and below *before*.

    Walks over all of them: about half a second for a million.
    """
    start = log.first_offset if after is None else after.end
    between = list(_legible(log, start, before))
    step = -(-len(between) // (MAX_PROBES - 1))
    return [_probe(log, place) for place in between[:: max(1, step)]]


class CommonEndSearch:
    """Finds the end up to which *log* equals another one, which is asked about ``probes``.

    Example::

        search = CommonEndSearch(log)
        while (common_end := search.answered(ask(search.probes))) is None:
            pass
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._held: Probe | None = None  # the last one known to be in both
        self._missing: Probe | None = None  # the first one known to be in this log only
        self.probes = first_probes(log)

    def answered(self, count: int) -> int | None:
        """Process the number of ``probes``, from the first on, that the other log has.

        Returns the common end: the end of this log if the other one has all of it, its first offset
        if it has nothing of it. None: ask again about the new ``probes``.
        """
        if count:
            self._held = self.probes[count - 1]
        if count < len(self.probes):
            self._missing = self.probes[count]
        if self._missing is None:
            return self._log.end_offset
        closer = closer_probes(self._log, self._held, self._missing.offset)
        if closer:
            # If all probes matched, the logs differ after the last one.
            self.probes = [*closer, self._missing]
            return None
        return self._log.first_offset if self._held is None else self._held.end


def count_common(log: CommitLog, probes: Sequence[Probe]) -> int:
    """Return how many of the ascending *probes*, from the first on, this log has.

    The last one that it has proves those before, of which some may be damaged here. Probes before
    its first byte count as present: they were deleted and cannot be compared.
    """
    for count in range(len(probes), 0, -1):
        probe = probes[count - 1]
        if probe.offset < log.first_offset or _holds(log, probe):
            return count
    return 0


def _holds(log: CommitLog, probe: Probe) -> bool:
    try:
        return zlib.crc32(log.read(probe.offset, probe.size)) == probe.crc
    except StoreError:
        return False


def _probe(log: CommitLog, place: tuple[int, int]) -> Probe:
    return Probe(*place, zlib.crc32(log.read(*place)))


def _legible(log: CommitLog, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield offset and size of the messages from *start* on, below *end*, passing over damage."""
    offset = start
    while offset < end:
        try:
            for place in places_of(log, offset, end):
                yield place
                offset = sum(place)
            return
        except StoreError:
            with closing(LogView(log.segments)) as view:
                following = next(iter(LogScan(view, start=offset, until=end)), None)
            if following is None or following.physical_offset >= end:
                return
            yield following.physical_offset, following.size
            offset = following.physical_offset + following.size
