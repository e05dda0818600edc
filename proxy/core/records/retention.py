"""When a message, or a record, is near to being deleted by the broker's retention. Pure.

Brokers delete whole files of their log, the oldest first, never the last: those last written long
ago, those ahead of the newest so many bytes, or any if the disk is full. How long, and how many,
they do not say, and both count for the messages of all topics together: the last record of a quiet
queue goes with what others wrote beside it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogRange:
    """What a broker keeps: the bytes of its log from ``begin``, where a file begins, up to ``end``,
    in files of ``file_bytes`` (None: nobody knows).
    """

    begin: int
    end: int
    file_bytes: int | None


def is_to_be_renewed(place: int, log: LogRange) -> bool:
    """True if what stands at *place* in the *log* of its broker may be deleted before the next look
    at it, or is deleted already.

    That is all that does not stand in the last file: so what is to be kept is written once more
    for each file of the log. Where nobody knows how long a file is, it is the newest quarter.
    """
    if log.file_bytes is None:
        return place < log.end - (log.end - log.begin) // 4
    last = log.begin + max(0, log.end - 1 - log.begin) // log.file_bytes * log.file_bytes
    return place < last


def nears_the_end_before_ms(oldest_ms: int, *, now_ms: int, margin_s: float) -> float:
    """Store time (ms since 1970) below which messages near their end, the oldest that the broker
    keeps being of *oldest_ms*.

    The margin is a quarter of what the broker keeps at most, or all would be near where that is
    little.
    """
    return oldest_ms + min(margin_s * 1000, max(0, now_ms - oldest_ms) / 4)
