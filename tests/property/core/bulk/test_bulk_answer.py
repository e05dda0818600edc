"""A reader that continues at the end of each answer gets every message once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.bulk.answer import BulkAnswer, Part, Read

#: Size of a message, so that chunks reveal how many messages they contain.
SIZE = 100


@dataclass
class Queue:
    """Offsets up to *end*; those in *gaps* (begin, end) are deleted."""

    end: int
    gaps: list[tuple[int, int]]

    def pull(self, read: Read, most: int) -> tuple[int, int]:
        """Return the number of messages from the offset of *read* on, and the next offset."""
        offset = read.offset
        for begin, end in self.gaps:
            if begin <= offset < end:
                return 0, end
        stop = min([begin for begin, _ in self.gaps if begin > offset] + [self.end])
        room = max(1, read.max_bytes // SIZE)
        count = max(0, min(most, room, read.max_messages, stop - offset))
        return count, offset + count


@dataclass
class Reader:
    """Ranges of offsets received from one queue."""

    at: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    jumps: list[tuple[int, int]] = field(default_factory=list)

    def take(self, part: Part) -> None:
        assert part.asked == self.at
        count = sum(map(len, part.chunks)) // SIZE
        if count:
            assert part.next_offset == part.asked + count, "B1: no gap among records"
            self.ranges.append((part.asked, part.next_offset))
        elif part.next_offset != part.asked:
            self.jumps.append((part.asked, part.next_offset))
        self.at = part.next_offset


@st.composite
def queues(draw: st.DrawFn) -> list[Queue]:
    found = []
    for _ in range(draw(st.integers(1, 4))):
        end = draw(st.integers(0, 60))
        bounds = sorted(draw(st.sets(st.integers(0, end), max_size=4)))
        found.append(Queue(end, list(pairwise(bounds))[::2]))
    return found


@given(queues(), st.integers(1024, 4_000), st.none() | st.integers(1, 20), st.integers(0, 2**32))
def test_everything_comes_once_and_in_order(
    stored: list[Queue], max_bytes: int, max_messages: int | None, seed: int
) -> None:
    choose = random.Random(seed)
    readers = [Reader() for _ in stored]
    for _ in range(600):
        if [reader.at for reader in readers] == [queue.end for queue in stored]:
            break
        offsets = [reader.at for reader in readers]
        answer = BulkAnswer(offsets, max_bytes=max_bytes, max_messages=max_messages)
        under_way: list[Read] = []
        while True:
            # Several reads at once, which end in any order; some fail.
            while len(under_way) < 3 and (read := answer.next_read()) is not None:
                under_way.append(read)
            if not under_way:
                break
            read = under_way.pop(choose.randrange(len(under_way)))
            if choose.randrange(10) == 0:
                answer.on_failure(read)
                continue
            queue = stored[read.place]
            count, next_offset = queue.pull(read, choose.choice([1, 3, 32]))
            records = bytes(count * SIZE)
            answer.on_read(read, records, next_offset=next_offset, end_offset=queue.end)
        chunks = chain.from_iterable(part.chunks for part in answer.parts)
        assert sum(map(len, chunks)) <= max_bytes + SIZE, "B2"
        for reader, part in zip(readers, answer.parts, strict=True):
            if max_messages is not None and part.chunks:
                assert part.next_offset - part.asked <= max_messages
            reader.take(part)
    for reader, queue in zip(readers, stored, strict=True):
        assert reader.at == queue.end, "it never came to an end"
        assert reader.jumps == [gap for gap in queue.gaps if gap[0] < gap[1]]
        covered = sorted(reader.ranges + reader.jumps)
        assert all(end == begin for (_, end), (begin, _) in pairwise(covered))
        assert not covered or (covered[0][0], covered[-1][1]) == (0, queue.end)
