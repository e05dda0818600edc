"""When a message or an ownership record is close to deletion by the broker's retention. Pure.

Brokers delete whole log files, the oldest first, never the last: by age, by total size, or all if
the disk is full. They do not report these limits, which apply to the messages of all topics
together: the last record of a quiet queue is deleted together with the messages written next to it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogRange:
    """Range of a broker's log: bytes from ``begin``, a start of a file, to ``end``, in files of
    ``file_bytes`` (None: unknown).
    """

    begin: int
    end: int
    file_bytes: int | None


def is_to_be_renewed(place: int, log: LogRange) -> bool:
    """Return True if the record at *place* in the broker's *log* may be deleted before the next
    check, or is deleted already.

    This is true for everything outside the last file, so records to keep are written again for each
    file of the log. If the file size is unknown, the newest quarter counts as the last file.
    """
    if log.file_bytes is None:
        return place < log.end - (log.end - log.begin) // 4
    last = log.begin + max(0, log.end - 1 - log.begin) // log.file_bytes * log.file_bytes
    return place < last


def keeps_everything(log: LogRange) -> bool:
    """Return True if nothing in the broker's *log* is to be renewed, whatever its place: no file
    was ever deleted, and only one exists.
    """
    return log.begin == 0 and not is_to_be_renewed(0, log)


def nears_the_end_before_ms(oldest_ms: int, *, now_ms: int, margin_s: float) -> float:
    """Return the store time (ms since 1970) below which messages are close to deletion, given the
    store time *oldest_ms* of the oldest message that the broker keeps.

    The margin is at most a quarter of the kept time, so that not all messages of a short log count
    as close to deletion.
    """
    return oldest_ms + min(margin_s * 1000, max(0, now_ms - oldest_ms) / 4)
