"""Bulk reads: topics, ranges of queues, stored records, and reports of progress."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from thin_client import calls
from thin_client.backoff import backoff_ns
from thin_client.calls import Call
from thin_client.errors import ProtocolError, Refused
from thin_client.options import client_version
from thin_client.spark.offsets import (
    ANOTHER_LIFE,
    QueueState,
    Slice,
    flat,
    lives_of,
    sorted_offsets,
)
from thin_client.spark.options import Connecting
from thin_client.spark.proxy_calls import PATIENCE_S, ProxyCalls
from thin_client.spark.server_order import KnownFailures
from thrift_idl import consumer

#: The same for a report: the next one supersedes it, and the query must not wait.
REPORT_PATIENCE_S = 5.0
#: Most topics that the proxy accepts in one request.
_MOST_TOPICS = 1_000
#: Time for which a queue with messages may return none: the proxy may be throttling bulk reads.
STALL_S = 300.0
#: Time for which the proxy holds a fetch that finds no messages or waits for its turn, and its
#: share of the time-out: an answer behind the time-out is none, and the next request waits as long.
_LINGER_MS, _SHARE = 2_000, 0.5

#: Stored size of a message with a small body; replaced by the average of each answer.
_FIRST_GUESS_BYTES = 512
_STORED_FORMAT = 1
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_AT = 20
_HEAD_BYTES = _QUEUE_OFFSET_AT + _QUEUE_OFFSET.size


class DataLost(Exception):
    """Messages of a slice are no longer in their queue, or never were.

    ``first_there``: the first offset that can be read; the slice's end if there is none.
    """

    def __init__(self, part: Slice, first_there: int, reason: str) -> None:
        self.part = part
        self.first_there = first_there
        self.reason = reason
        super().__init__(
            f"offsets {part.start} to {first_there - 1} of queue {part.qid} of topic"
            f" {part.topic!r} are lost: {reason}; set failOnDataLoss to false to skip them, or"
            " restart the query with a new checkpoint"
        )

    def __reduce__(self) -> tuple[type[DataLost], tuple[Slice, int, str]]:
        return DataLost, (self.part, self.first_there, self.reason)


@dataclass(slots=True)
class Counts:
    """Messages by topic that a reader reports: *lost* before it got to them, *skipped* although
    they may still exist, and read again (*repeated*) after a failure.
    """

    lost: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.lost or self.skipped or self.repeated)


class BulkClient:
    """Bulk reader of one group. Not thread-safe."""

    def __init__(
        self,
        connecting: Connecting,
        *,
        patience_s: float = PATIENCE_S,
        failures: KnownFailures | None = None,
    ) -> None:
        """Raise ValueError for an invalid address or certificate. The first request connects.

        *failures*: as of ``ProxyCalls``.
        """
        self._connecting = connecting
        self._patience_s = patience_s
        self._calls = ProxyCalls(connecting, patience_s=patience_s, failures=failures)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the connection settings, never the connection."""
        return _restored, (self._connecting, self._patience_s)

    def topics(self) -> list[str]:
        """Return the existing topics that the group can read. Raises ClientError."""
        request = consumer.TopicsRequest(
            groupId=self._connecting.group, token=self._connecting.token
        )
        found = self._calls.ask(lambda: calls.topics(request))
        return sorted(found)

    def check_group(self) -> None:
        """Raise ClientError if the proxy does not have the group: then it answers as if every topic
        were missing, which says nothing of them.
        """
        self.topics()

    def ranges(self, topics: Iterable[str], timestamp_ms: int | None = None) -> list[QueueState]:
        """Return every queue of *topics*; with *timestamp_ms* also ``at``, a broker lookup each.

        Raises ClientError; Refused for a topic or group that does not exist.
        """
        found: list[QueueState] = []
        wanted = sorted(topics)
        for at in range(0, len(wanted), _MOST_TOPICS):
            request = consumer.RangesRequest(
                groupId=self._connecting.group,
                topics=wanted[at : at + _MOST_TOPICS],
                timestampMs=timestamp_ms,
                withoutCommitted=True,
                token=self._connecting.token,
            )
            answer = self._calls.ask(partial(calls.ranges, request))
            found += [_state(each, self._calls.address) for each in answer]
        return sorted(found)

    def records(
        self, part: Slice, *, batch_bytes: int, with_bodies: bool = True
    ) -> Iterator[bytes]:
        """Yield chunks of stored records from ``part.start`` to ``part.end``; the last chunk may
        extend beyond it. A chunk has about *batch_bytes*, or less if the proxy's limit is lower.
        The next chunk is requested while the caller processes one. Without *with_bodies* the proxy
        may leave bodies out.

        Raises DataLost if offsets are missing or belong to another incarnation of the topic than
        *part*, and ClientError.
        """
        offset = part.start
        record_bytes = float(_FIRST_GUESS_BYTES)
        stalled = _Stall()
        while offset < part.end:
            wanted = int(batch_bytes / record_bytes)
            place = _Place(part, offset, wanted, with_bodies)
            found = self._fetch(place)
            if part.life is not None and found.life not in (None, part.life):
                rest = replace(part, start=offset)
                raise DataLost(rest, part.end, f"the topic was {ANOTHER_LIFE}")
            chunk, following = found.records or b"", found.nextRequestOffset
            if chunk:
                first = _first_offset(chunk, part)
                if first > offset:
                    raise self._lost(part, offset, first)
                if following is None or following <= offset:
                    raise ProtocolError(
                        f"{self._calls.address} sent records of {part.topic}/{part.qid} from"
                        f" offset {first}, but {following} as the next offset"
                    )
                record_bytes = max(len(chunk) / (following - first), 1.0)
                offset = following
                stalled.ends()
                self._fetch_ahead(
                    _Place(part, offset, int(batch_bytes / record_bytes), with_bodies)
                )
                yield chunk
            elif following is not None and following > offset:
                raise self._lost(part, offset, following)
            else:
                self._expect_more(part, offset, stalled)

    def report(
        self, offsets: Mapping[str, Mapping[str, int]], counts: Counts | None = None
    ) -> str | None:
        """Set the group's committed offsets to a stream's *offsets*, in the lives that these name,
        and add *counts* to its metrics.

        Return why the proxy did not set the offsets, a sentence; None if it did. Raises
        ClientError.
        """
        positions = flat(offsets)
        lives = [each for each in lives_of(offsets).items() if each[0] in positions]
        request = consumer.ProgressReport(
            groupId=self._connecting.group,
            consumerId=self._connecting.consumer_id,
            offsets=sorted_offsets(positions.items()),
            lives=sorted_offsets(lives) or None,
            token=self._connecting.token,
        )
        if counts is not None:
            request.lost, request.skipped = dict(counts.lost), dict(counts.skipped)
            request.repeated = dict(counts.repeated)
        patience_s = min(REPORT_PATIENCE_S, self._patience_s)
        return self._calls.ask(lambda: calls.report(request), patience_s=patience_s).refusal

    def close(self) -> None:
        """Close the connection; a later request opens a new one."""
        self._calls.close()

    # ---- requests -------------------------------------------------------------------------------

    def _fetch(self, place: _Place) -> consumer.QidResponse:
        answer = self._calls.ask(lambda: self._fetch_call(place), about=place)
        address = self._calls.address
        if answer.code == _UNAUTHORIZED:
            raise Refused(
                _UNAUTHORIZED,
                f"{address} refused fetch: the token is missing or invalid: set the option token",
            )
        if answer.code == _FORBIDDEN:
            raise Refused(
                _FORBIDDEN,
                f"{address} refused fetch: the token's owner has no permission: grant it in the"
                " proxy's setting access",
            )
        results = answer.results or []
        if answer.code or len(results) != 1:
            raise ProtocolError(
                f"{address} answered a fetch of one queue with code {answer.code} and"
                f" {len(results)} queues"
            )
        return results[0]

    def _fetch_ahead(self, place: _Place) -> None:
        """Send the request for *place* without waiting; the later fetch reports a failure."""
        if place.offset < place.part.end:
            self._calls.ask_ahead(self._fetch_call(place), about=place)

    def _fetch_call(self, place: _Place) -> Call[consumer.FetchResponse]:
        part = place.part
        most = max(1, min(place.wanted, part.end - place.offset, 2**31 - 1))
        timeout_ms = 1000 * self._connecting.request_timeout_s
        return calls.fetch(
            consumer.FetchRequest(
                consumerId=self._connecting.consumer_id,
                groupId=self._connecting.group,
                cluster="",
                fetchOffset={part.topic: {part.qid: place.offset}},
                maxBatchSize=most,
                maxLingerTime=min(_LINGER_MS, int(_SHARE * timeout_ms)),
                version=client_version(),
                format=_STORED_FORMAT,
                withoutBodies=None if place.with_bodies else True,
                token=self._connecting.token,
            )
        )

    def _expect_more(self, part: Slice, offset: int, stalled: _Stall) -> None:
        """After an answer without records: return if more can be expected, else raise."""
        state = self._state(part)
        if state is None and stalled.lasts_s() < self._patience_s:
            stalled.wait()  # its broker may be restarting
            return
        if state is None:
            self.check_group()
        if state is None or state.end <= offset:
            raise self._lost(part, offset, part.end)
        if state.begin > offset:
            raise self._lost(part, offset, state.begin)
        if stalled.lasts_s() > max(STALL_S, self._patience_s):
            raise Refused(
                500,
                f"{self._calls.address} sent no records of {part.topic}/{part.qid} from"
                f" offset {offset} for {stalled.lasts_s():.0f} s, although the queue ends at"
                f" {state.end}: see the proxy's log",
            )
        stalled.wait()

    def _lost(self, part: Slice, offset: int, first_there: int) -> DataLost:
        state = self._state(part)
        if state is None:
            reason, first_there = "the queue no longer exists", part.end
        elif state.end <= offset:
            reason, first_there = (
                f"the queue ends at {state.end}: the topic may have been deleted and created again",
                part.end,
            )
        elif state.begin > offset:
            reason = f"the oldest message is at {state.begin}: the broker deleted older ones"
        else:
            reason = f"the broker skips them, although its oldest message is at {state.begin}"
        rest = replace(part, start=offset)
        return DataLost(rest, min(max(first_there, offset + 1), part.end), reason)

    def _state(self, part: Slice) -> QueueState | None:
        try:
            found = self.ranges([part.topic])
        except Refused as error:
            if error.code != _NOT_FOUND:
                raise
            return None
        return next((each for each in found if each.qid == part.qid), None)


@dataclass(frozen=True, slots=True)
class _Place:
    """Arguments of a fetch: *wanted* messages of the slice's queue from *offset*."""

    part: Slice
    offset: int
    wanted: int
    with_bodies: bool


def _restored(connecting: Connecting, patience_s: float) -> BulkClient:
    return BulkClient(connecting, patience_s=patience_s)


class _Stall:
    """Time for which a queue with messages has returned none."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._waits = 0

    def ends(self) -> None:
        self._since = None
        self._waits = 0

    def lasts_s(self) -> float:
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since

    def wait(self) -> None:
        self._waits += 1
        time.sleep(backoff_ns(self._waits, random.random()) / 1e9)


def _state(found: consumer.QueueRange, sender: object) -> QueueState:
    topic, qid, begin, end = found.topic, found.qid, found.beginOffset, found.endOffset
    if topic is None or qid is None or begin is None or end is None:
        raise ProtocolError(f"{sender} answered ranges with an incomplete queue: {found!r}")
    return QueueState(*(topic, qid, begin, end, found.offsetAtTimestamp, found.life))


def _first_offset(chunk: bytes, part: Slice) -> int:
    """Return the queue offset of the first record."""
    if len(chunk) < _HEAD_BYTES:
        raise ProtocolError(
            f"the proxy sent an invalid stored record of {part.topic}/{part.qid}: {chunk!r}"
        )
    (offset,) = _QUEUE_OFFSET.unpack_from(chunk, _QUEUE_OFFSET_AT)
    return int(offset)
