"""The embedded broker as a whole: opens the store, listens, runs periodic work, saves, closes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import structlog

from broker_core.access.file import AccessFile
from broker_core.broker.components import Components
from broker_core.broker.figures import BrokerFigures, figures_of
from broker_core.broker.housekeeping import repeated, retried
from broker_core.broker.registration import EVERY_S, Registration
from broker_core.broker.replicas.elector import Elector, Life
from broker_core.broker.replicas.replica import Replica, open_store
from broker_core.broker.replicas.role import BETWEEN_REPLICAS
from broker_core.broker.replicas.table_updates import table_updates
from broker_core.broker.request_codes import handlers_of
from broker_core.broker.settings import BrokerSettings
from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.remoting.route_bodies import MASTER_ID
from broker_core.remoting_channel import Handler
from broker_core.remoting_server import RemotingServer
from broker_core.store.message_store import MessageStore
from broker_core.tasks import cancel_and_wait, in_thread, spawn
from broker_core.tls import ClientContext

SAVE_EVERY_S = 5.0  # committed offsets that a crash may undo
SWEEP_EVERY_S = 0.5  # a hanging member delays its group until it is dropped
RETENTION_EVERY_S = 60.0
#: Elected masters register more often, in case an older registration arrived late.
ELECTED_EVERY_S = 5.0
LOOK_EVERY_S = 0.1  # whether an elected master serves
CONFIRM_S = 1.0  # longest time for which a stop waits for replicas

_log = structlog.get_logger("broker")


class Broker:
    """One embedded broker.

    Example::

        broker = Broker(BrokerSettings(data=Path("data"), nameserver=("127.0.0.1:9876",)))
        await broker.start()
        ...
        await broker.close()
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.address = settings.listen  # the address for clients, once started
        #: Its components and its listening side, once started.
        self.components: Components
        self.server: RemotingServer
        self._settings = settings
        self._turn = asyncio.Lock()  # held to open or close
        self.is_open = False
        self._closing = False
        self._elector: Elector | None = None
        self._life = Life("slave")  # as opened, if the master is elected
        self._elected_jobs: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Recover the data on disk, listen, and register.

        Raises StoreError if the data folder cannot be used, OSError if the address is not
        available, TlsError if a certificate or key cannot be used.
        """
        self._closing = False
        async with self._turn:
            await self._open()
        if self._elector is not None:
            self._elector.start()
            for name, job in (
                ("take the elected role", self._follow_election),
                ("register the elected role", self._announce_role),
            ):
                self._elected_jobs.append(spawn(job(), name=name))

    async def _open(self) -> None:
        self._housekeeping: list[asyncio.Task[None]] = []
        self._registration: Registration | None = None
        files = self._settings.client_tls
        self._client_tls = None if files is None else ClientContext(files, "client_tls")
        store = await in_thread(open_store, self._settings)
        try:
            self._access = AccessFile(self._settings.acl)
            await self._load_elector(store)
            settings = self._settings.in_role(self._life.role)
            replica = Replica(
                settings,
                store,
                credentials=self._access.own_credentials(),
                tls=self._client_tls,
                elector=self._elector,
            )
            self.components = await in_thread(
                Components, settings, store, replica, announce=self._announce
            )
            replica.start_store(self.components.arrived)
            self.server = RemotingServer(
                self._access.guarded(self._handlers()),
                on_closed=self.components.connection_closed,
                max_connections=settings.max_connections,
                max_connections_per_address=settings.max_connections_per_address,
                max_inflight_bytes=settings.max_inflight_bytes,
                tls=settings.tls,
            )
            host, _, port = settings.listen.rpartition(":")
            self.components.use_address(await self.server.listen(host.strip("[]"), int(port)))
        except BaseException:
            store.abandon()
            raise
        self.address = self.components.address
        if self._elector is not None:
            self._elector.attach(replica)
        await self._register()
        self._start_jobs()
        self.is_open = True

    async def _load_elector(self, store: MessageStore) -> None:
        """Note the role to open in, of replicas that elect their master."""
        if self._settings.role != "elected":
            return
        if self._elector is None:
            credentials = self._access.own_credentials()
            self._elector = await in_thread(
                lambda: Elector.load(
                    self._settings, store, credentials=credentials, tls=self._client_tls
                )
            )
        self._life = self._elector.life

    def _handlers(self) -> dict[int, Handler]:
        election = {} if self._elector is None else self._elector.handlers()
        own = handlers_of(self.components, rights_of=self._access.rights_of)
        return {**own, **election}

    async def _follow_election(self) -> None:
        """Open again whenever the role has changed."""
        elector = self._elector
        while elector is not None:
            await elector.changed.wait()
            elector.changed.clear()
            while self._life != elector.life and not self._closing:
                if self.components.replica.has_failed:
                    # Read again it would come from the cache, not from the disk.
                    _log.error("the log failed; this replica takes no part until a restart")
                    return
                # A close must not interrupt it, and waits for it.
                await asyncio.shield(spawn(self.reopen(), name="take the elected role"))

    async def _announce_role(self) -> None:
        """Register again at once whenever this broker begins or ceases to serve as master."""
        served = False
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self.is_open and self._registration is not None:
                serves = self.components.replica.serves
                if serves != served:
                    served = serves
                    _log.info("serves as master" if serves else "does not serve as master")
                    await self._registration.refresh()

    def _registered_id(self) -> int:
        if self._elector is not None and self.components.replica.serves:
            return MASTER_ID
        return self._settings.broker_id

    def _start_jobs(self) -> None:
        components = self.components
        components.replica.start(
            address=self.address,
            find_master=self._find_master,
            table_updates=table_updates(
                components.directory,
                components.group_directory,
                deletion=components.deletion,
                offsets=components.offsets,
                offset_saver=components.offset_saver,
            ),
            reopen=lambda: spawn(self.reopen(), name="reopen the broker"),
        )
        self._keep_house()
        for job in (components.sampler, self._access, components.keys):
            job.start()
        if not components.replica.is_slave:  # a slave's data comes from its master
            components.delayed.start()
            components.transaction_check.start()

    def figures(self) -> BrokerFigures | None:
        """Return the figures now, None while the broker is not open. Raises OSError."""
        return figures_of(self.components, self.server) if self.is_open else None

    def not_ready(self) -> str | None:
        """Return why the broker cannot serve clients, None if it can."""
        if not self.is_open:
            return "it is not open"
        if self.components.replica.has_failed:
            return "its disk refused a write of the log: replace the disk and restart the broker"
        return None

    async def close(self) -> None:
        """Answer running requests, unregister, and write everything."""
        self._closing = True  # otherwise a failing reopen would be waited for
        await cancel_and_wait(*self._elected_jobs)
        async with self._turn:
            if self.is_open:
                await self._shut()
        if self._elector is not None:
            await self._elector.close()

    async def reopen(self) -> None:
        """Close, apply planned changes of the files, and start again at the same address."""
        async with self._turn:
            if self._closing:
                return
            host = self._settings.listen.rpartition(":")[0]
            port = self.address.rpartition(":")[2]
            self._settings = self._settings.model_copy(update={"listen": f"{host}:{port}"})
            await self._shut()
            await retried(self._open_unless_closing, name="reopen the broker")

    async def _open_unless_closing(self) -> None:
        if not self._closing:
            await self._open()

    async def _shut(self) -> None:
        self.is_open = False
        if self._elector is not None:
            self._elector.attach(None)
        if self._registration is not None:
            await self._registration.close()
        await self.server.refuse(but=BETWEEN_REPLICAS)
        self.components.long_polls.close()
        await self._confirm_sends()
        await self.server.refuse()
        await self._end_asking()
        await self.server.close()
        await self._end_writing()
        try:
            await self.components.save_tables()
            await self.components.fold_tables()
        except (OSError, StoreError) as error:
            _log.error("tables not saved", reason=str(error))
        try:
            await self.components.store.close()
        except OSError as error:
            _log.error("store not closed; the next start recovers it", reason=str(error))

    async def _confirm_sends(self) -> None:
        """Let replicas confirm what is stored, so that its senders get an answer that says so."""
        if self.components.replica.serves:  # otherwise it has no replicas that could
            with suppress(OSError):  # or the time is up
                async with asyncio.timeout(CONFIRM_S):
                    await self.components.store.confirmed()

    async def abandon(self) -> None:
        """End as in a crash: without answers, saves or syncs. For tests."""
        self._closing = True
        await cancel_and_wait(*self._elected_jobs)
        async with self._turn:
            if self.is_open:
                await self._abandon()

    async def _abandon(self) -> None:
        self.is_open = False
        if self._elector is not None:
            self._elector.attach(None)
            await self._elector.abandon()
        await self._end_asking()
        if self._registration is not None:
            await self._registration.disconnect()
        await self._end_writing()
        self.components.store.abandon()
        await self.server.close(grace_s=0)

    async def _end_asking(self) -> None:
        components = self.components
        for job in (
            components.transaction_check,
            components.replica,
            self._access,
            components.sampler,
        ):
            await job.close()
        await cancel_and_wait(*self._housekeeping)

    async def _end_writing(self) -> None:
        await self.components.delayed.close()
        await self.components.keys.close()

    async def _register(self) -> None:
        topics = self.components.directory.topics
        self._registration = Registration(
            self._settings.nameserver,
            broker_name=self._settings.broker_name,
            cluster_name=self._settings.cluster_name,
            address=self.address,
            topics=topics,
            broker_id=self._registered_id,
            every_s=EVERY_S if self._elector is None else ELECTED_EVERY_S,
            tls=self._client_tls,
            credentials=self._access.own_credentials(),
        )
        await self._registration.start()

    async def _find_master(self) -> str | None:
        if self._elector is not None:
            return self._elector.master_address
        if self._registration is None or not self.is_open:  # or it would register again
            return None
        await self._registration.refresh()
        return self._registration.master_address

    async def _announce(self, topics: Iterable[Topic] | None) -> None:
        """Notify the nameservers of changed *topics*, or of all."""
        if self._registration is not None:
            await self._registration.announce(topics)

    def _keep_house(self) -> None:
        for name, every_s, action in (
            ("save tables", SAVE_EVERY_S, self.components.save_tables),
            ("end silent members and locks", SWEEP_EVERY_S, self.components.sweep),
            ("delete old messages", RETENTION_EVERY_S, self.components.delete_expired),
        ):
            self._housekeeping.append(spawn(repeated(every_s, action, name), name=name))
