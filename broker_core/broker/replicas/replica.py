"""The role of a broker among the replicas of its log: the master, or a slave that serves reads.

One class for both, so that the server needs no distinction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from broker_core import chance
from broker_core.broker.groups.locks_processor import LockProcessor
from broker_core.broker.groups.strict_locks_processor import (
    RegisteredReplicas,
    StrictLockProcessor,
)
from broker_core.broker.replicas.elected_copy import ElectedCopy
from broker_core.broker.replicas.election import LogState
from broker_core.broker.replicas.elector import Elector
from broker_core.broker.replicas.log_history import LogHistory
from broker_core.broker.replicas.log_identity import LogIdentity
from broker_core.broker.replicas.replicas import Replicas
from broker_core.broker.replicas.replication import ElectedMaster, Replication
from broker_core.broker.replicas.role import (
    CHANGES_OF_TABLES,
    SERVED_BY_SLAVES,
    SERVED_WITHOUT_LEASE,
    STORES,
)
from broker_core.broker.replicas.shipped_tables import ShippedTables
from broker_core.broker.replicas.slave import MasterFollower, TableUpdate
from broker_core.broker.settings import BrokerSettings
from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.routes import RouteCache
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import NOT_MASTER, BrokerError, StoreError
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag, UpdateConsumerOffsetHeader
from broker_core.remoting.signing import Credentials
from broker_core.remoting_channel import Answer, Handler, RemotingChannel, Result
from broker_core.store.epochs import epoch_record
from broker_core.store.message_store import MessageStore
from broker_core.store.pending import ArrivalListener, Kept
from broker_core.store.replicated_store import ReplicatedStore
from broker_core.tasks import cancel_and_wait, in_thread, spawn
from broker_core.tls import ClientContext

_ASK_NAMESERVER_S = 1.0
_BEGIN_AGAIN_S = 1.0  # after the disk refused the first message of an epoch

_log = structlog.get_logger("broker")


def open_store(settings: BrokerSettings) -> MessageStore:
    """Open the store that *settings* need. Blocks; raises StoreError."""
    held = settings.role != "master" or settings.needed_replicas > 1
    return (ReplicatedStore if held else MessageStore)(
        settings.data, segment_bytes=settings.segment_bytes, flush=settings.flush
    )


class ElectedFigures(NamedTuple):
    """Numbers of replicas that elect their master, itself included, and the master's epoch."""

    voters: int
    in_sync: int
    epoch: int


class Replica:
    """The role of one broker.

    Raises StoreError if the table with the identity of the log is unreadable or cannot be written.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        *,
        credentials: Credentials | None,
        tls: ClientContext | None = None,
        elector: Elector | None = None,
    ) -> None:
        """Read the identity of the log; *settings* have the role of this opening.

        Args:
            settings: role master or slave
            store: opened, not started
            credentials: sign requests between replicas, if required
            tls: None for plain connections
            elector: if the role was elected
        """
        self._elector = elector
        self._credentials = credentials
        self._tls = tls
        self._settings = settings
        self._store = store
        self._table = store.table("replication")
        self._pool = ConnectionPool(credentials=credentials, tls=tls)
        self._master: Replication | None = None
        self._follower: MasterFollower | None = None
        self._grace: asyncio.Task[None] | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._open = False
        self._identity, self._history = self._load()
        self._begins_at = store.copies.end_offset  # of an elected master's own data
        if settings.role == "master":
            self._master = Replication(
                store,
                identity=self._identity,
                tables=ShippedTables(store.tables_folder),
                broker_name=settings.broker_name,
                replicas=Replicas(
                    settings.needed_replicas,
                    confirmed=self._confirmed(),
                    floor=0 if elector is None else self._begins_at + 1,
                ),
                timeout_s=settings.slave_timeout_s,
                election=self._elected_master(),
            )

    def _load(self) -> tuple[LogIdentity, LogHistory | None]:
        try:
            return self._load_tables()
        except (ValueError, OSError) as error:
            raise StoreError(f"{self._table.path} cannot be used: {error}") from error

    def _load_tables(self) -> tuple[LogIdentity, LogHistory | None]:
        copies, elector, history = self._store.copies, self._elector, None
        known = LogIdentity.from_table(self._table.load())
        fresh_id = chance.token(16).hex()
        master = self._settings.role == "master"
        if elector is None:
            identity = known.started("master" if master else "slave", fresh_id=fresh_id)
            for name in ("epochs", "election"):  # an election later begins with this log
                if (table := self._store.table(name)).path.exists():
                    table.delete()
        else:
            has_log = known.log_id is not None and copies.end_offset > copies.first_offset
            history = LogHistory(self._store.table("epochs"), has_log=has_log)
            if self._store.recovery.lost_bytes:
                history.lost()
            if master:
                if copies.end_offset < elector.elected_end:
                    elector.resign()
                    raise StoreError(
                        f"the log ends at {copies.end_offset}, it ended at {elector.elected_end}"
                        " when this replica was elected: another one is to be elected"
                    )
                epoch = elector.life.epoch
                identity = known.elected(epoch, fresh_id=fresh_id)
                history.begin(epoch, end=copies.end_offset, first=copies.first_offset)
            else:
                identity = known.started("slave", fresh_id=fresh_id)
        if identity != known:
            self._table.save(identity.to_table())
        return identity, history

    def _elected_master(self) -> ElectedMaster | None:
        elector, history, epoch = self._elector, self._history, self._identity.epoch
        if elector is None or history is None:
            return None
        return ElectedMaster(
            frozenset(self._settings.replica_addresses),
            history.epochs.to_json(),
            is_master=lambda: elector.is_master_of(epoch),
        )

    def _confirmed(self) -> int:
        store = self._store
        return store.confirmed_end if isinstance(store, ReplicatedStore) else store.durable_end

    @property
    def is_slave(self) -> bool:
        """True if this broker copies a master."""
        return self._master is None

    @property
    def available(self) -> int:
        """Replicas that the master counts on, itself included; 0 at a slave."""
        return 0 if self._master is None else self._master.replicas.available

    @property
    def log_id(self) -> str | None:
        """Id of the log, None while there is none."""
        return self._identity.log_id if self._follower is None else self._follower.log_id

    @property
    def has_failed(self) -> bool:
        """True once the disk refused a sync of the log."""
        return self._store.copies.failure is not None

    def log_state(self) -> LogState | None:
        """Return the log's state for an election, None if the log cannot be used."""
        if not self._open or self.has_failed or self._history is None:
            return None
        position = self._history.position(self._store.copies.end_offset)
        return LogState(position, self._history.complete)

    @property
    def serves(self) -> bool:
        """True if clients should use this broker as the master now.

        An elected master needs its lease, and a majority that has its log.
        """
        master, elector = self._master, self._elector
        if master is None or elector is None:
            return master is not None
        return (
            elector.is_master_of(self._identity.epoch)
            and elector.has_lease
            and master.shown > self._begins_at
        )

    def figures(self) -> dict[str, str]:
        """Return what operators see of the replicas, by name."""
        elector, master = self._elector, self._master
        if elector is None:
            return {}
        figures = {
            "replicaId": str(self._settings.broker_id),
            "replicaRole": "master" if self.serves else "slave",
            "replicaComplete": str(self._history is not None and self._history.complete).lower(),
            "masterId": str(elector.master_id),
            "masterEpoch": str(elector.term),
            "voters": ",".join(map(str, sorted(self._settings.replica_addresses))),
        }
        if self.serves and master is not None:
            ids = sorted((self._settings.broker_id, *master.replicas.in_sync()))
            figures["inSyncReplicas"] = ",".join(map(str, ids))
        return figures

    def elected_figures(self) -> ElectedFigures | None:
        """Return what an elected master knows of the replicas, None of any other broker."""
        elector, master = self._elector, self._master
        if elector is None or master is None or not self.serves:
            return None
        return ElectedFigures(
            voters=len(self._settings.replica_addresses),
            in_sync=1 + len(master.replicas.in_sync()),
            epoch=elector.term,
        )

    @property
    def was_promoted(self) -> bool:
        """True if this was a slave before this start: the old master may have had newer data."""
        return self._identity.lock_grace

    @property
    def lock_grace_s(self) -> float:
        """Seconds for which no orderly lock may be granted: another master's may be alive.

        The locks of an elected master need the votes of a majority, and each voter keeps its votes
        on disk; so only a replica that has lost them waits.
        """
        if self._elector is not None:
            if self._store.table("orderlyLock").path.exists():
                return 0.0
            waited_s = (now_ns() - self._elector.started_ns) / 1e9
            return max(0.0, self._settings.lock_expiry_s - waited_s)
        return self._settings.lock_expiry_s if self._identity.lock_grace else 0.0

    def start_store(self, on_arrival: ArrivalListener) -> None:
        """Start the store; its sends wait for slaves if required."""
        if self._master is None:
            self._store.start(on_arrival)
            return
        waits = self._settings.needed_replicas > 1
        self._store.start(
            on_arrival,
            on_durable=self._master.log_advanced,
            replicas=self._master.kept if waits else None,
        )

    def handlers(
        self, own: Mapping[int, Handler], locks: LockProcessor, *, address: Callable[[], str]
    ) -> dict[int, Handler]:
        """Return the handlers that the role permits, from *own* and *locks*."""
        handlers = {**own, **self._lock_handlers(locks, address)}
        if self._master is not None:
            handlers = {**handlers, **self._master.handlers()}
            if self._elector is None:
                return handlers
            for code in CHANGES_OF_TABLES & handlers.keys():
                handlers[code] = self._once_kept(handlers[code])
            commit = handlers[RequestCode.UPDATE_CONSUMER_OFFSET]
            handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = self._kept_at_once(commit)
            return self._with_lease(handlers)
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            handlers[code] = _without_commit(handlers[code])
        commit = handlers[RequestCode.UPDATE_CONSUMER_OFFSET]
        handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = self._while_alone(commit)
        return {
            code: handler if code in SERVED_BY_SLAVES else _refuse
            for code, handler in handlers.items()
        }

    def connection_closed(self, channel: RemotingChannel) -> None:
        """Note that a connection to this broker ended."""
        if self._master is not None:
            self._master.connection_closed(channel)

    def start(
        self,
        *,
        address: str,
        find_master: Callable[[], Awaitable[str | None]],
        table_updates: Mapping[str, TableUpdate],
        reopen: Callable[[], object],
    ) -> None:
        """Start to follow the master, if this is a slave; see ``MasterFollower``."""
        self._open = True
        elector, history = self._elector, self._history
        if isinstance(self._store, ReplicatedStore) and self.is_slave:
            self._follower = MasterFollower(
                self._store,
                identity=self._identity,
                identity_table=self._table,
                broker_name=self._settings.broker_name,
                broker_id=self._settings.broker_id,
                address=address,
                credentials=self._credentials,
                tls=self._tls,
                find_master=find_master,
                table_updates=table_updates,
                reopen=reopen,
                election=ElectedCopy(elector, history) if elector and history else None,
            )
            self._follower.start()
        elif elector is not None:
            self._beginning = spawn(self._begin_epoch(), name="begin the epoch")
        elif self._identity.lock_grace:
            self._grace = spawn(self._end_grace(), name="end the grace of locks")

    async def delete_expired(self) -> None:
        """Delete what the master has deleted: only it knows what must be kept. Raise OSError."""
        hours = self._settings.retention_hours
        first = 0 if self._follower is None else self._follower.first_offset
        await self._store.delete_expired(
            before_ms=None if hours is None else wall_ms() - int(hours * 3_600_000),
            keep_bytes=0,
            keep_from=first,
        )

    async def close(self) -> None:
        """Stop before the server: answer what waits for slaves."""
        self._open = False
        await cancel_and_wait(self._grace, self._beginning)
        if self._follower is not None:
            await self._follower.close()
        if self._master is not None:
            self._master.close()
        await self._pool.close()

    async def _begin_epoch(self) -> None:
        """Append this master's first message: once it is confirmed, all older ones are.

        Without it no replica serves, so it is tried again while there is no room on the disk.
        """
        said = False
        while not self.has_failed:  # otherwise another replica is elected
            try:
                await self._record()
            except OSError as error:
                if not said:
                    epoch = self._identity.epoch
                    _log.error("the epoch cannot begin yet", epoch=epoch, reason=str(error))
                said = True
            else:
                return
            await asyncio.sleep(_BEGIN_AGAIN_S)

    async def _record(self) -> Kept:
        record = epoch_record(self._identity.epoch, self._settings.broker_id)
        return (await self._store.put(*record, store_ms=wall_ms())).kept

    def _once_kept(self, change: Handler) -> Handler:
        """Answer a change of a table once enough replicas have it."""

        async def handler(request: RemotingCommand, channel: RemotingChannel) -> Answer:
            result = change(request, channel)
            answer = await result if isinstance(result, Awaitable) else result
            try:
                kept = await self._record()
            except OSError as error:
                raise BrokerError(
                    ResponseCode.SYSTEM_ERROR,
                    "changed here, but not confirmed by replicas, since the broker cannot write its"
                    f" log now: {error.strerror}; repeat the request",
                ) from error
            if kept is not Kept.WELL:
                raise BrokerError(
                    ResponseCode.FLUSH_SLAVE_TIMEOUT,
                    "changed here, but not confirmed by replicas in time: repeat the request",
                )
            return answer  # type: ignore[return-value]  # none of these answers is a LateAnswer

        return handler

    def _kept_at_once(self, commit: Handler) -> Handler:
        """Answer a commit that asks for the disk as a change of a table."""
        kept = self._once_kept(commit)

        def handler(request: RemotingCommand, channel: RemotingChannel) -> Result:
            header = UpdateConsumerOffsetHeader.from_ext(request.ext)
            return (kept if header.at_once else commit)(request, channel)

        return handler

    def _with_lease(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Refuse what only a master serves while this one cannot be sure that it is the only
        one.
        """

        def guarded(code: int, handle: Handler) -> Handler:
            stores = code in STORES

            def handler(request: RemotingCommand, channel: RemotingChannel) -> Result:
                self._check_master()
                if stores and self.available < self._settings.needed_replicas:
                    raise BrokerError(
                        ResponseCode.SERVICE_NOT_AVAILABLE,
                        f"not stored: {self.available} of {self._settings.needed_replicas} needed"
                        " replicas are connected",
                    )
                return handle(request, channel)

            return handler

        return {
            code: handler if code in SERVED_WITHOUT_LEASE else guarded(code, handler)
            for code, handler in handlers.items()
        }

    def _check_master(self) -> None:
        if not self.serves:
            raise _not_serving()

    async def _end_grace(self) -> None:
        await asyncio.sleep(self.lock_grace_s)
        await in_thread(self._table.save, replace(self._identity, lock_grace=False).to_table())

    def _lock_handlers(
        self, locks: LockProcessor, address: Callable[[], str]
    ) -> Mapping[int, Handler]:
        settings = self._settings
        if not settings.lock_in_strict_mode:
            if self.is_slave:
                return {RequestCode.LOCK_BATCH_MQ: _refuse, RequestCode.UNLOCK_BATCH_MQ: _refuse}
            return locks.handlers()
        if self._elector is not None:
            return StrictLockProcessor(
                locks,
                total_replicas=settings.total_replicas,
                others=self._other_voters,
                pool=self._pool,
                check_master=self._check_master,
            ).handlers()
        routes = RouteCache(settings.nameserver, self._pool, timeout_s=_ASK_NAMESERVER_S)
        replicas = RegisteredReplicas(
            settings.broker_name, address=address, clusters=routes.clusters
        )
        return StrictLockProcessor(
            locks,
            total_replicas=settings.total_replicas,
            others=replicas.others,
            pool=self._pool,
        ).handlers()

    async def _other_voters(self) -> list[str]:
        addresses, own_id = self._settings.replica_addresses, self._settings.broker_id
        return [address for each, address in addresses.items() if each != own_id]

    def _while_alone(self, commit: Handler) -> Handler:
        """Refuse commits while the master is reachable: its table would replace them at once."""

        def handler(request: RemotingCommand, channel: RemotingChannel) -> Result:
            alone = self._follower is None or not self._follower.follows
            if not alone or self._elector is not None:  # the next master would not know it
                raise _refusal()
            return commit(request, channel)

        return handler


def _without_commit(pull: Handler) -> Handler:
    """Ignore the commits in pulls, as RocketMQ's slaves do."""

    def handler(request: RemotingCommand, channel: RemotingChannel) -> Result:
        flags = request.ext.get("sysFlag", "")
        if flags.isdecimal():
            request.ext["sysFlag"] = str(int(flags) & ~PullFlag.COMMIT_OFFSET)
        return pull(request, channel)

    return handler


def _refuse(request: RemotingCommand, channel: RemotingChannel) -> Answer:
    raise _refusal()


def _refusal() -> BrokerError:
    return BrokerError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"{NOT_MASTER} but a slave: send the request to its master",
    )


def _not_serving() -> BrokerError:
    return BrokerError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"{NOT_MASTER} now: its replicas elect one, ask a nameserver for it",
    )
