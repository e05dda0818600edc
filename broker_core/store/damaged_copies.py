"""Copying a part of a log that is damaged: its bytes as they are, with the messages lost in it.

The copy has the same bytes at the same places, so both logs stay equal, and its queues leave out
the same offsets. What is intact, before and behind the damage, is copied as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from broker_core.names import TIMER_TOPIC, Topic
from broker_core.remoting.message import MAGIC_BLANK
from broker_core.store.commit_log import FILLER, CommitLog
from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.copying import Chunk, CopiedGap, LostRun
from broker_core.store.log_scan import LogScan, LogView


def examined_chunk(log: CommitLog, offset: int, *, limit: int, max_bytes: int) -> Chunk | None:
    """Return the bytes from *offset* on and below *limit*, with the damage among them.

    Every byte is checked. The chunk ends after the first message behind damage, or with the damage
    if that is longer than *max_bytes* or nothing intact follows in its segment. None: there are no
    bytes. Raises OSError if the disk fails.
    """
    segment = log.segment_at(offset)
    if segment is None or offset >= limit:
        return None
    until = min(segment.end, limit)
    with closing(LogView(each for each in log.segments if each.start >= segment.start)) as view:
        scan = LogScan(view, start=offset, until=until)
        end = offset
        for message in scan:
            after = message.physical_offset + message.size
            is_large = after - offset > max_bytes
            if scan.gaps or (is_large and end > offset):
                end = end if not scan.gaps else scan.gaps[-1].end if is_large else after
                break
            end = after
        gaps = [CopiedGap(each.start, each.end, each.reason) for each in scan.gaps]
        if not gaps and scan.damaged_from is not None:  # nothing intact follows
            reason = scan.reason or "no message starts there"
            gaps, end = [CopiedGap(scan.damaged_from, until, reason)], until
        elif scan.end == segment.end:
            end = _with_filler(log, max(end, *(each.end for each in gaps), offset), segment.end)
    if gaps and gaps[0].end - offset > max_bytes:
        end = max(gaps[0].start, offset + max_bytes)
        gaps = [gaps[0]._replace(end=end)] if end > gaps[0].start else []
    return Chunk(offset, log.read(offset, end - offset), segment.start, segment.capacity, (*gaps,))


def _with_filler(log: CommitLog, end: int, segment_end: int) -> int:
    """Return the end of the filler at *end*, of which only the head is copied, if there is one."""
    if end + FILLER.size > segment_end:
        return end
    size, magic = FILLER.unpack(log.read(end, FILLER.size))
    return end + FILLER.size if magic == MAGIC_BLANK and end + size == segment_end else end


def lost_in(queues: ConsumeQueues, gaps: Iterable[CopiedGap]) -> list[LostRun]:
    """Return the messages in *gaps*, by the entries of their queues; in the order of the gaps."""
    named = [each for each in queues.named() if each[:2] != (TIMER_TOPIC, 1)]  # of ended messages
    return [
        run
        for gap in gaps
        for topic, queue_id, queue in named
        for run in _runs(topic, queue_id, queue, gap)
    ]


def _runs(topic: Topic, queue_id: int, queue: ConsumeQueue, gap: CopiedGap) -> Iterator[LostRun]:
    first, end = queue.first_at_or_behind(gap.start), queue.first_at_or_behind(gap.end)
    begin = first
    while begin < end:
        unwritten = queue.entry(begin)[1] == 0
        after = begin + 1
        while after < end and (queue.entry(after)[1] == 0) == unwritten:
            after += 1
        yield LostRun(topic, queue_id, begin, after, gap.start, unwritten)
        begin = after
