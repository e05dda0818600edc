"""A master's side of replication: admits slaves, tracks their copies, and confirms messages."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass, field

import orjson
import structlog

from broker_core.broker.replicas.log_identity import LogIdentity
from broker_core.broker.replicas.replicas import Replicas
from broker_core.broker.replicas.shipped_tables import ShippedTables
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, StoreError
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.replication_headers import (
    FetchLogHeader,
    FetchLogResponse,
    JoinMasterHeader,
    JoinMasterResponse,
    damage_to_json,
    names_from_json,
    probes_from_json,
    queue_starts_to_json,
    tables_to_json,
)
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.common_end import Probe
from broker_core.store.copying import Chunk
from broker_core.store.message_store import MessageStore
from broker_core.store.pending import Kept
from broker_core.store.replicated_store import ReplicatedStore
from broker_core.tasks import in_thread

#: Longest time before a fetch is answered, so that a slave knows that its master is alive.
HOLD_S = 1.0
SILENT_NS = 10_000_000_000  # a slave asks each second; after this time it no longer counts
_MAX_TEXT = 255

_log = structlog.get_logger("broker")


@dataclass(slots=True)
class _Slave:
    """A slave that has joined, by its connection."""

    broker_id: int
    address: str
    heard_ns: int
    sent_confirm: int = -1
    sent_tables: str = ""
    asked: int = 0  # offset of its fetch that is held
    wake: asyncio.Future[bool] | None = None


@dataclass(frozen=True, slots=True)
class ElectedMaster:
    """Additions of an election to a master.

    Args:
        voters: ids of the replicas; others must not copy
        epochs: epochs of the log, in the form of a join's answer
        is_master: returns whether this broker is master in its epoch still
    """

    voters: Container[int]
    epochs: bytes
    is_master: Callable[[], bool]


@dataclass(slots=True)
class Replication:
    """Replication to slaves. One event loop only.

    *timeout_s*: time limit of a send that waits for slaves. *election*: for an elected master.
    """

    store: MessageStore
    identity: LogIdentity
    tables: ShippedTables
    broker_name: str
    replicas: Replicas
    timeout_s: float
    election: ElectedMaster | None = None
    _slaves: dict[RemotingChannel, _Slave] = field(default_factory=dict)
    _shown: int = field(init=False)  # up to there, confirmed messages are visible
    _shows_more: asyncio.Handle | None = None
    _is_closed: bool = False
    _waiting: list[tuple[int, int, asyncio.Future[bool]]] = field(default_factory=list)
    _given_up: int = 0  # at most that many of them have ended
    _warnings: RareWarnings = field(default_factory=lambda: RareWarnings("broker"))
    _numbers: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)

    def __post_init__(self) -> None:
        self._shown = self.replicas.confirmed

    @property
    def shown(self) -> int:
        """Offset of the log up to which confirmed messages are visible."""
        return self._shown

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.JOIN_MASTER: self._join,
            RequestCode.FETCH_LOG: self._fetch,
            RequestCode.FETCH_TABLES: self._fetch_tables,
        }

    def connection_closed(self, channel: RemotingChannel) -> None:
        """Remove the slave on the connection, if there is one."""
        slave = self._slaves.pop(channel, None)
        if slave is None:
            return
        self._lost(slave, "its connection ended")

    def _leave_out_silent(self) -> None:
        """Remove silent slaves: each send would wait for its timeout because of them."""
        oldest_ns = now_ns() - SILENT_NS
        silent = [each for each, slave in self._slaves.items() if slave.heard_ns < oldest_ns]
        for channel in silent:  # its next fetch is refused, and it joins again
            self._lost(self._slaves.pop(channel), "it stopped fetching")

    def _lost(self, slave: _Slave, why: str) -> None:
        if all(other.broker_id != slave.broker_id for other in self._slaves.values()):
            self.replicas.left(slave.broker_id)
        _log.warning("slave lost", id=slave.broker_id, address=slave.address, why=why)

    def log_advanced(self) -> None:
        """Note that the log is durable up to a later position, here or at a slave."""
        if self.election is not None and not self.election.is_master():
            return  # it has voted for another one, whose log need not contain newer messages
        self.replicas.confirm(self.store.durable_end)
        self._show()
        self._wake()

    def _show(self) -> None:
        """Make confirmed messages visible and answer their sends, many in slices of time."""
        confirmed = self.replicas.confirmed
        if isinstance(self.store, ReplicatedStore):
            self._shown = self.store.confirm_some(confirmed)
        else:
            self._shown = confirmed
        while self._waiting and self._waiting[0][0] <= self._shown:
            done = heapq.heappop(self._waiting)[2]
            _end(done, True)
        if self._shown < confirmed and self._shows_more is None and not self._is_closed:
            self._shows_more = asyncio.get_running_loop().call_soon(self._show_more)

    def _show_more(self) -> None:
        self._shows_more = None
        try:
            self.log_advanced()
        except (OSError, StoreError) as error:
            _log.error("confirmed messages are not visible yet", reason=str(error))

    async def kept(self, end: int) -> Kept:
        """Return how well the log is replicated up to *end*, once that is known."""
        if end <= self._shown:
            return Kept.WELL
        self._leave_out_silent()
        elected = self.election is not None
        if self.replicas.available < self.replicas.needed:
            return Kept.UNCONFIRMED if elected else Kept.ALONE
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()
        heapq.heappush(self._waiting, (end, self._numbers(), done))
        timer = loop.call_later(self.timeout_s, _end, done, False)
        is_kept = False
        try:
            is_kept = await done
        finally:
            timer.cancel()
            if not is_kept:
                self._gave_up()
        if is_kept:
            return Kept.WELL
        return Kept.UNCONFIRMED if elected else Kept.UNSURE

    def _gave_up(self) -> None:
        """Forget waits that have ended, once they are the larger part."""
        self._given_up += 1
        if 2 * self._given_up > len(self._waiting):
            self._waiting = [each for each in self._waiting if not each[2].done()]
            heapq.heapify(self._waiting)
            self._given_up = 0

    def close(self) -> None:
        """Answer all waiting requests."""
        self._is_closed = True
        if self._shows_more is not None:
            self._shows_more.cancel()
        for _, _, done in self._waiting:
            _end(done, False)
        for slave in self._slaves.values():
            if slave.wake is not None:
                _end(slave.wake, True)

    # -- requests of slaves ---------------------------------------------------------------------

    def _join(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = JoinMasterHeader.from_ext(request.ext)
        if header.broker_name != self.broker_name:
            why: str | None = f"this is broker {self.broker_name}, not {header.broker_name[:200]!r}"
        elif header.broker_id < 1:
            why = f"brokerId is {header.broker_id}: a slave's is 1 or more"
        elif len(header.broker_addr) > _MAX_TEXT or len(header.log_id) > _MAX_TEXT:
            why = f"brokerAddr or logId has more than {_MAX_TEXT} characters"
        elif self.election is not None and header.broker_id not in self.election.voters:
            why = f"brokerId is {header.broker_id}: it is none of this broker's voters"
        else:
            why = self.identity.why_not(header.log_id or None, header.epoch)
        if why is not None:
            self._warnings.warn("slave refused", peer=channel.peer, id=header.broker_id, reason=why)
            raise BrokerError(ResponseCode.NO_PERMISSION, why)
        copies = self.store.copies
        probes = [Probe(*probe) for probe in probes_from_json(request.body)]
        agreed = copies.count_common(probes)
        first = copies.first_offset
        starts_over = header.end_offset < first
        joined = (
            not starts_over
            and agreed == len(probes)
            and copies.can_continue(probes[-1] if probes else None, header.end_offset)
        )
        if joined:
            self._joined(header, channel)
        response = JoinMasterResponse(
            log_id=self.identity.log_id or "",
            epoch=self.identity.epoch,
            first_offset=first,
            agreed=agreed,
            joined=joined,
            end_offset=self.store.durable_end,
        )
        if not joined:
            body = queue_starts_to_json(copies.queue_starts())
        else:
            body = b"" if self.election is None else self.election.epochs
        return request.response(ext=response.to_ext(), body=body)

    def _joined(self, header: JoinMasterHeader, channel: RemotingChannel) -> None:
        slave = _Slave(header.broker_id, header.broker_addr, now_ns())
        for other, held in list(self._slaves.items()):
            if held.broker_id == slave.broker_id:
                del self._slaves[other]  # it returned before the end of its connection was noticed
                if held.address != slave.address:
                    _log.warning(
                        "two slaves have the same broker_id; the last one replaces the other",
                        id=slave.broker_id,
                        addresses=[held.address, slave.address],
                    )
        self._slaves[channel] = slave
        self.replicas.acked(slave.broker_id, header.end_offset)
        _log.info(
            "slave joined",
            id=slave.broker_id,
            address=slave.address,
            behind_bytes=self.store.durable_end - header.end_offset,
        )
        self.log_advanced()

    def _fetch(
        self, request: RemotingCommand, channel: RemotingChannel
    ) -> Answer | Awaitable[Answer]:
        slave = self._slaves.get(channel)
        if slave is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "no slave has joined on this connection")
        header = FetchLogHeader.from_ext(request.ext)
        offset = header.offset
        if offset < self.store.copies.first_offset:
            raise BrokerError(
                ResponseCode.PULL_OFFSET_MOVED,
                f"the log begins at {self.store.copies.first_offset}, after {offset}",
            )
        if offset > self.store.durable_end:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"the log is durable up to {self.store.durable_end}, not {offset}",
            )
        slave.heard_ns = now_ns()
        self.replicas.acked(slave.broker_id, offset)
        self.log_advanced()
        answer = self._news(request, slave, offset, examined=header.examined)
        return self._hold(request, slave, offset) if answer is None else answer

    async def _hold(self, request: RemotingCommand, slave: _Slave, offset: int) -> Answer:
        loop = asyncio.get_running_loop()
        slave.asked, slave.wake = offset, (wake := loop.create_future())
        timer = loop.call_later(HOLD_S, _end, wake, False)
        try:
            await wake
        finally:
            timer.cancel()
        return self._news(request, slave, offset, also_none=True)

    def _news(
        self,
        request: RemotingCommand,
        slave: _Slave,
        offset: int,
        *,
        also_none: bool = False,
        examined: bool = False,
    ) -> Answer:
        tables = orjson.dumps(self.tables.versions(now_ns=now_ns())).decode()
        confirmed = self.replicas.confirmed
        chunk = self._chunk(offset, examined=examined)
        is_known = confirmed == slave.sent_confirm and tables == slave.sent_tables
        if chunk is None and is_known and not also_none:
            return None
        slave.sent_confirm, slave.sent_tables = confirmed, tables
        header = FetchLogResponse(
            segment_start=0 if chunk is None else chunk.segment_start,
            segment_bytes=0 if chunk is None else chunk.segment_bytes,
            first_offset=self.store.copies.first_offset,
            confirm_offset=confirmed,
            tables=tables,
            damage="" if chunk is None else damage_to_json(chunk.gaps, chunk.lost),
        )
        return request.response(ext=header.to_ext(), body=b"" if chunk is None else chunk.data)

    def _chunk(self, offset: int, *, examined: bool) -> Chunk | None:
        copies, limit = self.store.copies, self.store.durable_end
        try:
            try:
                return (copies.examined if examined else copies.chunk)(offset, limit=limit)
            except StoreError:  # no message starts where one should
                return copies.examined(offset, limit=limit)
        except (StoreError, OSError) as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from error

    async def _fetch_tables(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        names = names_from_json(request.body)
        try:
            body = await in_thread(lambda: tables_to_json(self.tables.read(names)))
        except (StoreError, OSError) as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return request.response(body=body)

    def _wake(self) -> None:
        """Answer the fetches for which there is news.

        An answer without any would be followed by a fetch, which is news for no other slave.
        """
        end, confirmed = self.store.durable_end, self.replicas.confirmed
        for slave in self._slaves.values():
            has_news = slave.asked < end or slave.sent_confirm != confirmed
            if slave.wake is not None and has_news:
                _end(slave.wake, True)


def _end(wait: asyncio.Future[bool], result: bool) -> None:
    if not wait.done():
        wait.set_result(result)
