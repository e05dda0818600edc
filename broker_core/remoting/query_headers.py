"""Headers of queries for messages and of resets of a group. Pure.

Source: the ``*Header`` classes as in ``headers.py``; forms and rules are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from broker_core.remoting.header_fields import Header, Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageHeader(Header):
    """Code 12: messages of *topic* with *key*, stored between two times (ms since 1970).

    ``unique_key``: *key* is the id of one message, and ``max_num`` is ignored.
    """

    wire_names: ClassVar[Mapping[str, str]] = {"unique_key": "_UNIQUE_KEY_QUERY"}

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: int
    end_timestamp: int
    unique_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageResponse(Header):
    """The position of the index at the time of the query.

    ``complete`` (ours): the search came to its end, so there are no older messages; False: it ended
    at a limit before.
    """

    index_last_update_timestamp: int
    index_last_update_phyoffset: int
    complete: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMessageHeader(Header):
    """Code 33: the message at *offset* of the log."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampResponse(Header):
    """Answers 32: ms since 1970, -1 for a queue without messages."""

    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetHeader(Header):
    """Codes 220 and 222: *group* shall continue in *topic* at *timestamp*; -1: at the end.

    ``is_force`` false: only if that is earlier. 5.x may set one ``queue_id`` and an ``offset`` in
    it instead of a time.
    """

    topic: str
    group: str
    timestamp: int
    is_force: bool = True
    queue_id: Int32 = -1
    offset: int | None = None
