"""The key index against a dictionary, over restarts and lost ends of the log."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from broker_core.store import key_index
from broker_core.store.key_index import KeyIndex

SEGMENT = 1000
#: Evenly distributed hashes, and others: many messages of one key.
HASHES = st.one_of(st.sampled_from([0, 1, 7, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(HASHES, max_size=4)),
        st.tuples(st.just("restart"), st.floats(0, 1)),
        st.tuples(st.just("torn"), st.integers(0, 200)),
        st.tuples(st.just("delete"), st.none()),
    ),
    max_size=60,
)


@dataclass(slots=True)
class Log:
    """A log: positions with the hashes of their keys; messages of 90 bytes."""

    messages: dict[int, set[int]] = field(default_factory=dict)
    first: int = 0
    end: int = 0

    @property
    def segments(self) -> list[int]:
        return list(range(self.first, max(self.end, self.first + 1), SEGMENT))

    def append(self, hashes: set[int]) -> None:
        if self.end % SEGMENT + 90 + 8 > SEGMENT:
            self.end += SEGMENT - self.end % SEGMENT
        self.messages[self.end] = hashes
        self.end += 90

    def cut(self, end: int) -> None:
        whole = [place for place in self.messages if place + 90 <= end]
        self.end = max(self.first, max(whole, default=-90) + 90)
        self.messages = {place: self.messages[place] for place in whole}


def index_all(index: KeyIndex, log: Log) -> None:
    """Index all, like the indexer."""
    index.delete_before(log.first)
    for place, hashes in log.messages.items():
        if place < index.position:
            continue
        if place // SEGMENT != index.position // SEGMENT:
            index.advance(place - place % SEGMENT, ends_segment=True)
            index.write_due()
        index.add(hashes, place, store_ms=place)
        index.advance(place + 90)
        index.write_due()


def found(index: KeyIndex, wanted: int, log: Log) -> list[int]:
    places = index.candidates(wanted, begin_ms=0, end_ms=2**62)
    return [place for place in places if place is not None and place >= log.first]


@given(steps=steps)
def test_what_was_entered_is_found_and_nothing_else(steps: list[tuple[str, object]]) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        mock.patch.object(key_index, "RUN_ENTRIES", 12),
        mock.patch.object(key_index, "WINDOW", 2),
    ):
        folder, log = Path(name), Log()
        index = KeyIndex(folder, segments=[0], end=0)
        for step, how in steps:
            match step, how:
                case "add", [*hashes]:
                    log.append(set(hashes))
                    index_all(index, log)
                case "restart", float(part):
                    index.close()
                    if part < 0.3:  # a power failure removed a part of the log as well
                        log.cut(log.end - int(part * 600))
                    index = KeyIndex(folder, segments=log.segments, end=log.end)
                    index_all(index, log)
                case "torn", int(size):
                    index.close()
                    if files := sorted(folder.iterdir()):
                        left = files[-1].stat().st_size - size
                        with files[-1].open("r+b") as file:
                            file.truncate(max(0, left))
                    index = KeyIndex(folder, segments=log.segments, end=log.end)
                    index_all(index, log)
                case "delete", None if len(log.segments) > 1:
                    log.first = log.segments[1]
                    log.messages = {p: h for p, h in log.messages.items() if p >= log.first}
                    index_all(index, log)
            if log.messages:
                assert index.position == log.end
        for wanted in {0, 1, 7, 2**31, *set().union(*log.messages.values(), ())}:
            expected = [place for place, hashes in log.messages.items() if wanted in hashes]
            assert found(index, wanted, log) == sorted(expected, reverse=True)
        index.close()
