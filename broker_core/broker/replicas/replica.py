"""The role of a broker among the replicas of its log: the master, or a slave that serves reads.

One class for both, so that the server needs no distinction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from broker_core import chance
from broker_core.broker.groups.locks_processor import LockProcessor
from broker_core.broker.groups.strict_locks_processor import StrictLockProcessor
from broker_core.broker.replicas.log_identity import LogIdentity
from broker_core.broker.replicas.replicas import Replicas
from broker_core.broker.replicas.replication import Replication
from broker_core.broker.replicas.role import SERVED_BY_SLAVES
from broker_core.broker.replicas.shipped_tables import ShippedTables
from broker_core.broker.replicas.slave import MasterFollower, TableUpdate
from broker_core.broker.settings import BrokerSettings
from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.routes import RouteCache
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, StoreError
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag
from broker_core.remoting.signing import Credentials
from broker_core.remoting_channel import Answer, Handler, RemotingChannel, Result
from broker_core.store.message_store import MessageStore
from broker_core.store.pending import ArrivalListener
from broker_core.store.replicated_store import ReplicatedStore
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import ClientContext

_ASK_NAMESERVER_S = 1.0


def open_store(settings: BrokerSettings) -> MessageStore:
    """Open the store that *settings* need. Blocks; raises StoreError."""
    held = settings.role == "slave" or settings.needed_replicas > 1
    return (ReplicatedStore if held else MessageStore)(
        settings.data, segment_bytes=settings.segment_bytes, flush=settings.flush
    )


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
    ) -> None:
        """Read the identity of the log.

        *credentials*: sign requests between replicas, if required. *tls*: None for plain
        connections.
        """
        self._credentials = credentials
        self._tls = tls
        self._settings = settings
        self._store = store
        self._table = store.table("replication")
        self._pool = ConnectionPool(credentials=credentials, tls=tls)
        self._master: Replication | None = None
        self._follower: MasterFollower | None = None
        self._grace: asyncio.Task[None] | None = None
        self._identity = self._load_identity()
        if settings.role == "master":
            self._master = Replication(
                store,
                identity=self._identity,
                tables=ShippedTables(store.tables_folder),
                broker_name=settings.broker_name,
                replicas=Replicas(settings.needed_replicas, confirmed=self._confirmed()),
                timeout_s=settings.slave_timeout_s,
            )

    def _load_identity(self) -> LogIdentity:
        try:
            known = LogIdentity.from_table(self._table.load())
            identity = known.started(self._settings.role, fresh_id=chance.token(16).hex())
            if identity != known:
                self._table.save(identity.to_table())
        except (ValueError, OSError) as error:
            raise StoreError(f"{self._table.path} cannot be used: {error}") from error
        return identity

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
    def was_promoted(self) -> bool:
        """True if this was a slave before this start: the old master may have had newer data."""
        return self._identity.lock_grace

    @property
    def lock_grace_s(self) -> float:
        """Seconds for which no orderly lock may be granted: another master's may be alive."""
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
            return {**handlers, **self._master.handlers()}
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
            )
            self._follower.start()
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
        await cancel_and_wait(self._grace)
        if self._follower is not None:
            await self._follower.close()
        if self._master is not None:
            self._master.close()
        await self._pool.close()

    async def _end_grace(self) -> None:
        await asyncio.sleep(self.lock_grace_s)
        await asyncio.to_thread(
            self._table.save, replace(self._identity, lock_grace=False).to_table()
        )

    def _lock_handlers(
        self, locks: LockProcessor, address: Callable[[], str]
    ) -> Mapping[int, Handler]:
        settings = self._settings
        if not settings.lock_in_strict_mode:
            if self.is_slave:
                return {RequestCode.LOCK_BATCH_MQ: _refuse, RequestCode.UNLOCK_BATCH_MQ: _refuse}
            return locks.handlers()
        routes = RouteCache(settings.nameserver, self._pool, timeout_s=_ASK_NAMESERVER_S)
        return StrictLockProcessor(
            locks,
            broker_name=settings.broker_name,
            address=address,
            total_replicas=settings.total_replicas,
            clusters=routes.clusters,
            pool=self._pool,
        ).handlers()

    def _while_alone(self, commit: Handler) -> Handler:
        """Refuse commits while the master is reachable: its table would replace them at once."""

        def handler(request: RemotingCommand, channel: RemotingChannel) -> Result:
            if self._follower is not None and self._follower.follows:
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
        ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: send the request to its master"
    )
