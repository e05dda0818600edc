"""Where two logs part: the first byte behind what both of them hold. Pure but for the reading.

A message bears its place, the address of the broker that wrote it and the time; so two logs that
hold the same message at the same place are equal up to it, and one message compared tells of all
before it. Whoever looks for the joint offers probes of its own log, learns which of them the other
one holds as well, and offers closer ones between the last that fits and the first that does not.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from broker_core.errors import StoreError
from broker_core.store.commit_log import CommitLog
from broker_core.store.copying import places_of

#: In one question.
MAX_PROBES = 256


class Probe(NamedTuple):
    """One message of a log: its *offset*, *size* and CRC-32."""

    offset: int
    size: int
    crc: int

    @property
    def end(self) -> int:
        """Where the next message starts, or a filler."""
        return self.offset + self.size


def first_probes(log: CommitLog) -> list[Probe]:
    """The last message of the log, and the first of each of its newest segments; ascending."""
    starts = [segment.start for segment in log.segments if segment.start < log.end_offset]
    probes = [_probe(log, place) for start in starts for place in _some(log, start, 1)]
    if starts:
        last = None
        for place in places_of(log, starts[-1], log.end_offset):
            last = place
        if last is not None and last[0] != probes[-1].offset:
            probes.append(_probe(log, last))
    return probes[-MAX_PROBES:]


def closer_probes(log: CommitLog, after: Probe | None, before: int) -> list[Probe]:
    """Messages behind *after* (None: from the first on) and below *before*, evenly apart.

    Walks over all of them: about half a second for a million.
    """
    start = log.first_offset if after is None else after.end
    between = list(places_of(log, start, before))
    step = -(-len(between) // (MAX_PROBES - 1))
    return [_probe(log, place) for place in between[:: max(1, step)]]


class JointSearch:
    """Finds how far *log* is equal to another one, which is asked about ``probes``.

    Example::

        search = JointSearch(log)
        while (joint := search.answered(ask(search.probes))) is None:
            pass
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._held: Probe | None = None  # the last one known to be in both
        self._missing: Probe | None = None  # the first one known to be in this log alone
        self.probes = first_probes(log)

    def answered(self, count: int) -> int | None:
        """Take how many of ``probes``, from the first on, the other log holds as well.

        Returns the joint: the end of this log if all of it is in the other one, its first offset if
        nothing is. None: ask again, ``probes`` are others now.
        """
        if count:
            self._held = self.probes[count - 1]
        if count < len(self.probes):
            self._missing = self.probes[count]
        if self._missing is None:
            return self._log.end_offset
        closer = closer_probes(self._log, self._held, self._missing.offset)
        if closer:
            # Who holds all of a question holds the log: so what parts them stands in each.
            self.probes = [*closer, self._missing]
            return None
        return self._log.first_offset if self._held is None else self._held.end


def agreed(log: CommitLog, probes: Sequence[Probe]) -> int:
    """How many of the ascending *probes*, from the first on, this log holds as well.

    Those before its first byte count as held: they were deleted, and cannot be compared.
    """
    for count, probe in enumerate(probes):
        if probe.offset >= log.first_offset and not _holds(log, probe):
            return count
    return len(probes)


def _holds(log: CommitLog, probe: Probe) -> bool:
    try:
        return zlib.crc32(log.read(probe.offset, probe.size)) == probe.crc
    except StoreError:
        return False


def _probe(log: CommitLog, place: tuple[int, int]) -> Probe:
    return Probe(*place, zlib.crc32(log.read(*place)))


def _some(log: CommitLog, start: int, count: int) -> list[tuple[int, int]]:
    return list(islice(places_of(log, start, log.end_offset), count))
