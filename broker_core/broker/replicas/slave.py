"""A slave's side of replication: finds its master, joins it, and copies its log and tables.

Nothing is appended before the logs have been compared. Where they differ, the slave's is truncated:
it saves a plan, and the broker is opened again. Removed bytes stay in files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import structlog

from broker_core.broker.replicas.elected_copy import ElectedCopy
from broker_core.broker.replicas.log_identity import LogIdentity
from broker_core.broker.replicas.replication import HOLD_S
from broker_core.broker.replicas.shipped_tables import AT_ONCE, changed, is_shipped
from broker_core.client.connection_pool import ConnectionPool
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, ConnectionLost, RemotingError, StoreError
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode, request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.replication_headers import (
    FetchLogHeader,
    FetchLogResponse,
    JoinMasterHeader,
    JoinMasterResponse,
    damage_from_json,
    names_to_json,
    probes_to_json,
    queue_starts_from_json,
    tables_from_json,
)
from broker_core.remoting.signing import Credentials
from broker_core.store.common_end import Probe
from broker_core.store.copying import Chunk, CopiedGap, LostRun
from broker_core.store.rejoin import QueueStarts, Rejoin
from broker_core.store.replicated_store import ReplicatedStore
from broker_core.store.tables import JsonTable
from broker_core.tasks import cancel_and_wait, in_thread, spawn
from broker_core.tls import ClientContext

AGAIN_S = 1.0
_MOST_DOUBLINGS = 5  # of that, while the disk refuses
_TIMEOUT_S = 3.0
TABLES_EVERY_NS = 2_000_000_000

#: Applies the content of one of the master's tables. May raise OSError, ValueError, InvalidCommand.
TableUpdate = Callable[[dict[str, Any]], Awaitable[None]]

_log = structlog.get_logger("broker")


class MasterFollower:
    """Follows the master of a slave's broker name.

    *find_master* asks nameservers and returns an address, or None. *table_updates* apply tables
    that the broker has in memory, by name; others are only saved. *reopen* is called when the log
    must be truncated. *election*: if the master is elected.
    """

    def __init__(
        self,
        store: ReplicatedStore,
        *,
        identity: LogIdentity,
        identity_table: JsonTable,
        broker_name: str,
        broker_id: int,
        address: str,
        credentials: Credentials | None,
        tls: ClientContext | None,
        find_master: Callable[[], Awaitable[str | None]],
        table_updates: Mapping[str, TableUpdate],
        reopen: Callable[[], object],
        election: ElectedCopy | None = None,
    ) -> None:
        #: True while the master is reachable.
        self.follows = False
        #: First offset that the master's log had when everything confirmed then is here, too;
        #: retention follows it.
        self.first_offset = 0
        self._deletion: tuple[int, int] | None = None  # the next one, and the end needed for it
        self._store = store
        self._identity = identity
        self._identity_table = identity_table
        self._broker_name = broker_name
        self._broker_id = broker_id
        self._address = address
        self._find_master = find_master
        self._table_updates = table_updates
        self._reopen = reopen
        self._election = election
        self._new_pool = partial(ConnectionPool, credentials=credentials, tls=tls)
        self._pool = self._new_pool()
        self._known_tables: dict[str, str] = {}
        self._took_tables_ns = 0
        self._said = ""
        self._unwritten: Chunk | None = None  # for which there was no room
        self._refusals = 0  # by the disk, since something was copied
        self._task: asyncio.Task[None] | None = None

    @property
    def log_id(self) -> str | None:
        """Id of the log, None while it has no messages."""
        return self._identity.log_id

    def start(self) -> None:
        """Start to follow. Needs the running loop."""
        self._task = spawn(self._run(), name="follow the master")

    async def close(self) -> None:
        """Stop after the write under way."""
        await cancel_and_wait(self._task)
        await self._pool.close()

    async def _run(self) -> None:
        while True:
            try:
                if await self._follow():
                    return
            except (RemotingError, StoreError, ValueError) as error:
                self._say(str(error))
            except OSError as error:  # of the disk: network failures are RemotingErrors
                self._say(str(error))
                await self._leave()
            self.follows = False
            if (failure := self._store.copies.failure) is not None:
                await self._give_up(failure)
                return
            await asyncio.sleep(AGAIN_S * 2 ** min(self._refusals, _MOST_DOUBLINGS))

    async def _leave(self) -> None:
        """Disconnect, so that the master's sends no longer wait for this slave."""
        self._refusals += 1
        await self._pool.close()
        self._pool = self._new_pool()

    async def _give_up(self, failure: OSError) -> None:
        """Stop for good: a slave with a failed log would confirm data that is not on disk.

        Opening the log again here does not help: it would be read from the cache.
        """
        _log.error(
            "the log failed; this slave stops copying and does not count as a replica until a"
            " restart",
            id=self._broker_id,
            reason=str(failure),
        )
        await self._pool.close()  # the master notices at once

    def _say(self, problem: str) -> None:
        if problem != self._said:  # once, however long it lasts
            _log.warning("not following the master", id=self._broker_id, reason=problem)
        self._said = problem

    async def _follow(self) -> bool:
        """Copy until an error, which is raised; return True if the broker must be opened again."""
        if self._unwritten is not None:  # before the master counts on this slave
            await self._copy(self._unwritten)
        address = await self._find_master()
        if address is None:
            if self._election is not None:
                raise ConnectionLost(f"the replicas of {self._broker_name} have no master yet")
            raise ConnectionLost(f"no nameserver has a master of broker {self._broker_name}")
        rejoin = await self._join(address)
        if rejoin is not None:
            if self._election is not None and rejoin.queue_starts is not None:
                await self._election.starts_over()
            await in_thread(self._store.copies.plan_rejoin, rejoin)
            self._reopen()
            return True
        self._known_tables, self._deletion = {}, None
        self.follows = True
        offset = self._store.copies.end_offset
        await self._copy_once(address)
        self._said, self._refusals = "", 0
        _log.info("following the master", master=address, from_offset=offset)
        while True:
            await self._copy_once(address)

    # -- joining -------------------------------------------------------------------------------

    async def _join(self, address: str) -> Rejoin | None:
        """Join the master; return None if the log may continue, otherwise the plan to truncate
        it.
        """
        copies = self._store.copies
        end = copies.end_offset
        if end > self._store.durable_end:  # a join confirms it
            raise StoreError(f"the log ends at {end}, but not all of it is on disk")
        if self._identity.log_id is None and end > copies.first_offset:
            raise StoreError(
                "the log is neither a master's nor a copy of one: give the slave an empty"
                " data folder"
            )
        search = copies.common_end_search()
        while True:
            probes = search.probes
            response, starts = await self._ask_to_join(address, end, probes)
            if response.joined:
                return None
            if end < response.first_offset:
                return self._start_over(
                    response, starts, "the master's retention deleted the following messages"
                )
            common_end = search.answered(response.agreed)
            if common_end is None:
                continue
            if common_end == end and probes:
                common_end = probes[-1].end  # all but the end of a segment
            if common_end < response.first_offset or common_end == copies.first_offset:
                return self._start_over(response, starts, "the logs have nothing in common")
            _log.warning(
                "the log differs from the master's; the part after the common end is removed",
                common_end=common_end,
                removed_bytes=end - common_end,
            )
            return Rejoin(common_end, min(self._store.visible_end, common_end))

    async def _ask_to_join(
        self, address: str, end: int, probes: Sequence[Probe]
    ) -> tuple[JoinMasterResponse, QueueStarts]:
        header = JoinMasterHeader(
            broker_name=self._broker_name,
            broker_id=self._broker_id,
            broker_addr=self._address,
            log_id=self._identity.log_id or "",
            epoch=self._identity.epoch,
            end_offset=end,
        )
        answer = await self._ask(
            address, RequestCode.JOIN_MASTER, header.to_ext(), probes_to_json(probes)
        )
        response = JoinMasterResponse.from_ext(answer.ext)
        if self._election is not None:
            self._election.check(response.epoch)
        starts = {} if response.joined else queue_starts_from_json(answer.body)
        await self._adopt(response)
        if self._election is not None and response.joined:
            await self._election.joined(answer.body, end=response.end_offset)
        return response, {Topic(name): those for name, those in starts.items()}

    def _start_over(self, response: JoinMasterResponse, starts: QueueStarts, why: str) -> Rejoin:
        _log.warning("the log starts over", reason=why, begins_at=response.first_offset)
        return Rejoin(response.first_offset, 0, starts)

    async def _adopt(self, response: JoinMasterResponse) -> None:
        """Save the identity of the master's log before any of it is copied."""
        if (response.log_id, response.epoch) != (self._identity.log_id, self._identity.epoch):
            identity = replace(self._identity, log_id=response.log_id, epoch=response.epoch)
            await in_thread(self._identity_table.save, identity.to_table())
            self._identity = identity

    # -- copying -------------------------------------------------------------------------------

    async def _copy_once(self, address: str) -> None:
        copies = self._store.copies
        offset = copies.end_offset
        if self._election is not None:  # the request confirms what this replica has
            self._election.check(self._identity.epoch)
            await self._election.copied(self._store.durable_end)
        header, chunk = await self._fetch(address, offset, examined=False)
        await self._take_tables(address, orjson.loads(header.tables))
        if chunk is not None:
            try:
                await self._copy(chunk)
            except StoreError as error:
                if chunk.gaps:
                    raise
                await self._copy_damaged(address, offset, why=str(error))
        await self._confirm(header.confirm_offset)
        self._follow_deletions(header)

    def _follow_deletions(self, header: FetchLogResponse) -> None:
        """Delete what the master has deleted once the copies are here that it made before."""
        if self._deletion is None:
            self._deletion = header.first_offset, header.confirm_offset
        first, needed_end = self._deletion
        if self._store.durable_end >= needed_end:
            self.first_offset, self._deletion = first, None

    async def _confirm(self, end: int) -> None:
        """Make messages before *end* visible, many in slices of time."""
        reached = self._store.confirm_some(end)
        while reached < end:
            await asyncio.sleep(0)
            reached = self._store.confirm_some(end)

    async def _fetch(
        self, address: str, offset: int, *, examined: bool
    ) -> tuple[FetchLogResponse, Chunk | None]:
        request = FetchLogHeader(offset=offset, examined=examined)
        answer = await self._ask(address, RequestCode.FETCH_LOG, request.to_ext(), timeout_s=HOLD_S)
        header = FetchLogResponse.from_ext(answer.ext)
        if not answer.body:
            return header, None
        gaps, lost = damage_from_json(header.damage)
        return header, Chunk(
            offset,
            bytes(answer.body),
            header.segment_start,
            header.segment_bytes,
            tuple(CopiedGap(*each) for each in gaps),
            tuple(LostRun(Topic(each[0]), *each[1:]) for each in lost),
        )

    async def _copy_damaged(self, address: str, offset: int, *, why: str) -> None:
        """Copy data that is not intact, if it is not so at the master either."""
        _, chunk = await self._fetch(address, offset, examined=True)
        if chunk is None or not chunk.gaps:
            raise StoreError(why)  # it was damaged on its way
        await self._copy(chunk)

    async def _copy(self, chunk: Chunk) -> None:
        self._unwritten = None
        try:
            await self._store.copy(chunk)
        except OSError:
            self._unwritten = chunk
            raise
        self._refusals = 0
        for gap in chunk.gaps:
            _log.error(
                "the master's log is damaged; copied as it is, without the messages in it",
                start=gap.start,
                damaged_bytes=gap.end - gap.start,
                messages=sum(each.end - each.first for each in chunk.lost),
                reason=gap.reason,
            )

    async def _take_tables(self, address: str, versions: dict[str, str]) -> None:
        """Apply the master's tables: topics, groups and offsets at once, since the next data may
        need them; others at intervals.
        """
        names = changed(self._known_tables, versions)
        due = now_ns() - self._took_tables_ns >= TABLES_EVERY_NS
        if not names or (not due and not any(name in AT_ONCE for name in names)):
            return
        answer = await self._ask(address, RequestCode.FETCH_TABLES, {}, names_to_json(names))
        # In threads: a million offsets take seconds, in which nothing would be copied.
        tables = await in_thread(tables_from_json, answer.body)
        for name, (version, content) in tables.items():
            if not is_shipped(name):
                raise StoreError(f"the master sent an unknown table, {name[:80]!r}")
            update = self._table_updates.get(name)
            if update is not None:
                await update(content)
            else:
                await in_thread(self._store.table(name).save, content)
            self._known_tables[name] = version
        self._took_tables_ns = now_ns()

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        ext: dict[str, str],
        body: bytes = b"",
        *,
        timeout_s: float = 0.0,
    ) -> RemotingCommand:
        request = RemotingCommand(code, ext=ext, body=body)
        answer = await self._pool.request(address, request, timeout_s=timeout_s + _TIMEOUT_S)
        if answer.code != 0:
            raise BrokerError(answer.code, answer.remark or "", request=request_name(code))
        return answer
