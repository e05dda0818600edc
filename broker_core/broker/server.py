"""The embedded broker as a whole: opens the store, listens, sweeps, saves, closes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from broker_core.broker.access_file import AccessFile
from broker_core.broker.administration import administration
from broker_core.broker.adopters import adopters
from broker_core.broker.delayed_delivery import DelayedDelivery
from broker_core.broker.group_configs import GroupConfigs
from broker_core.broker.group_directory import GroupDirectory
from broker_core.broker.groups import Groups
from broker_core.broker.housekeeping import done_at_last, repeated
from broker_core.broker.key_lookup import KeyLookup
from broker_core.broker.long_polls import LongPolls
from broker_core.broker.offsets import CommittedOffsets
from broker_core.broker.own_address import own_address
from broker_core.broker.processors.clients import ClientProcessor
from broker_core.broker.processors.deleting import DeleteProcessor
from broker_core.broker.processors.locks import LockProcessor
from broker_core.broker.processors.offsets import OffsetProcessor
from broker_core.broker.processors.pulling import PullProcessor
from broker_core.broker.processors.queries import QueryProcessor
from broker_core.broker.processors.recalling import RecallProcessor
from broker_core.broker.processors.sending import SendProcessor
from broker_core.broker.processors.sending_back import SendBackProcessor
from broker_core.broker.processors.transactions import TransactionProcessor
from broker_core.broker.producers import Producers
from broker_core.broker.queue_locks import QueueLocks
from broker_core.broker.registration import Registration
from broker_core.broker.replica import Replica, open_store
from broker_core.broker.retention import Retention
from broker_core.broker.retry_topics import RetryTopics
from broker_core.broker.settings import BrokerSettings
from broker_core.broker.table_saver import TableSaver, loaded
from broker_core.broker.topic_deletion import TopicDeletion
from broker_core.broker.topic_directory import TopicDirectory
from broker_core.broker.topics import Topics
from broker_core.broker.traffic_sampler import TrafficSampler
from broker_core.broker.transaction_check import TransactionCheck
from broker_core.broker.transaction_desk import TransactionDesk
from broker_core.clock import now_ns
from broker_core.names import Topic
from broker_core.remoting.route_bodies import BrokerRegistration
from broker_core.remoting_channel import Handler, RemotingChannel
from broker_core.remoting_server import RemotingServer
from broker_core.tasks import cancel_and_wait, spawn

_SAVE_EVERY_S = 5.0  # committed offsets: what a crash may take back
_SWEEP_EVERY_S = 0.5  # a member that hangs holds up its group until it is dropped
_RETENTION_EVERY_S = 60.0

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
        self.address = settings.listen  # what clients connect to, once started
        self._settings = settings
        self._turn = asyncio.Lock()  # to open or close

    async def start(self) -> None:
        """Recover what is on disk, listen, register.

        Raises StoreError if the data folder cannot be used, OSError if the address cannot be had.
        """
        async with self._turn:
            await self._open()

    async def _open(self) -> None:
        settings = self._settings
        self._groups: Groups[RemotingChannel] = Groups()
        self._producers: Producers[RemotingChannel] = Producers()
        self._long_polls = LongPolls()
        self._housekeeping: list[asyncio.Task[None]] = []
        self._store = await asyncio.to_thread(open_store, settings)
        try:
            self._access = AccessFile(settings.acl)
            self._replica = Replica(
                settings, self._store, credentials=self._access.own_credentials()
            )
            self._load_tables()
            self._registration: Registration | None = None
            self._open_topics()
            self._clients = ClientProcessor(
                self._groups,
                producers=self._producers,
                group_directory=self._group_directory,
                directory=self._directory,
            )
            self._open_what_waits()
            self._sampler = TrafficSampler(self._store.reader)
            self._keys = await asyncio.to_thread(KeyLookup, self._store, settings)
            self._replica.start_store(self._arrived)
            self._server = RemotingServer(
                self._access.guarded(self._handlers()), on_closed=self._connection_closed
            )
            host, _, port = settings.listen.rpartition(":")
            self._adopt_address(await self._server.listen(host.strip("[]"), int(port)))
        except BaseException:
            self._store.abandon()
            raise
        await self._register()
        self._start_jobs()

    def _start_jobs(self) -> None:
        self._replica.start(
            address=self.address,
            find_master=self._find_master,
            adopters=adopters(
                self._directory,
                self._group_directory,
                deletion=self._deletion,
                offsets=self._offsets,
                offset_saver=self._offset_saver,
            ),
            reopen=lambda: spawn(self._reopen(), name="open the broker anew"),
        )
        self._keep_house()
        for job in (self._sampler, self._access, self._keys):
            job.start()
        if not self._replica.is_slave:  # what a slave does comes from its master
            self._delayed.start()
            self._transaction_check.start()

    async def close(self) -> None:
        """Answer what is being handled, leave the nameservers, write everything."""
        async with self._turn:
            await self._shut()

    async def _reopen(self) -> None:
        """Close and start again, at the same address: what stands on disk has to change first."""
        async with self._turn:
            host = self._settings.listen.rpartition(":")[0]
            port = self.address.rpartition(":")[2]
            self._settings = self._settings.model_copy(update={"listen": f"{host}:{port}"})
            await self._shut()
            await done_at_last(self._open, name="open the broker anew")

    async def _shut(self) -> None:
        for job in (self._transaction_check, self._replica, self._access, self._sampler):
            await job.close()
        await cancel_and_wait(*self._housekeeping)
        if self._registration is not None:
            await self._registration.close()
        self._long_polls.close()
        await self._server.close()
        await self._delayed.close()
        await self._keys.close()
        try:
            await self._save_tables()
        except OSError as error:
            _log.error("tables not saved", reason=str(error))
        try:
            await self._store.close()
        except OSError as error:
            _log.error("store left as by a crash, the next start recovers it", reason=str(error))

    async def abandon(self) -> None:
        """End as a crash would: nothing is answered, saved or flushed. For tests."""
        for job in (self._transaction_check, self._replica, self._access, self._sampler):
            await job.close()
        await cancel_and_wait(*self._housekeeping)
        if self._registration is not None:
            await self._registration.disconnect()
        await self._delayed.close()
        await self._keys.close()
        self._store.abandon()
        await self._server.close(grace_s=0)

    def _load_tables(self) -> None:
        store, settings = self._store, self._settings
        self._topics = loaded(store.table("topics"), Topics.from_table)
        self._topics.offer_system_topics()
        if settings.auto_create_topics:
            self._topics.offer_template(settings.default_queues)
        self._group_directory = GroupDirectory(
            loaded(store.table("subscriptionGroup"), GroupConfigs.from_table),
            store.table("subscriptionGroup"),
            auto_create=settings.auto_create_groups,
        )
        self._offsets = loaded(store.table("consumerOffset"), CommittedOffsets.from_table)
        self._locks = loaded(
            store.table("orderlyLock"),
            lambda table: QueueLocks.from_table(
                table, expiry_ns=int(settings.lock_expiry_s * 1e9), now_ns=now_ns()
            ),
        )
        # Before clamping: a clamped table differs from the file.
        self._offset_saver = TableSaver(
            store.table("consumerOffset"),
            content=self._offsets.to_table,
            change=lambda: self._offsets.change,
            # With flush="async" offsets of messages not yet on disk are known and committed.
            before=store.sync,
        )
        self._lock_saver = TableSaver(
            store.table("orderlyLock"),
            content=self._locks.to_table,
            change=lambda: self._locks.change,
        )

    def _open_topics(self) -> None:
        store = self._store
        self._directory = TopicDirectory(
            self._topics,
            store.table("topics"),
            announce=self._announce,
            read_only=self._replica.is_slave,
        )
        self._deletion = TopicDeletion(
            store,
            directory=self._directory,
            offsets=self._offsets,
            offset_saver=self._offset_saver,
            locks=self._locks,
            lock_saver=self._lock_saver,
            long_polls=self._long_polls,
        )
        self._deletion.catch_up()
        clamped = self._offsets.clamp(store.reader.next_offset)
        for offset in clamped:
            _log.warning("committed offset beyond the recovered queue", **offset._asdict())
        lost = store.recovery.dropped or store.recovery.lost_bytes
        if clamped or lost or self._replica.was_promoted:
            # Perhaps none is gone; but a fence less is better than a group that cannot commit.
            self._offsets.forget_epochs()

    def _open_what_waits(self) -> None:
        self._transactions = self._open_transactions()
        self._transaction_check = TransactionCheck(
            self._transactions,
            self._producers,
            interval_s=self._settings.transaction_check_interval_s,
            broker_name=self._settings.broker_name,
        )
        self._delayed = DelayedDelivery(
            self._store,
            self._topics,
            store_host=lambda: self._store_host,
            was_promoted=self._replica.was_promoted,
        )
        self._retention = Retention(
            self._settings,
            store=self._store,
            delayed=self._delayed,
            keep_from=self._transactions.oldest_place,
        )

    def _open_transactions(self) -> TransactionDesk:
        desk = TransactionDesk(
            self._store,
            rules=self._settings.check_rules(),
            directory=self._directory,
            offsets=self._offsets,
            store_host=lambda: self._store_host,
        )
        desk.load()
        return desk

    def _arrived(self, topic: Topic, queue_id: int, codes: frozenset[int]) -> None:
        self._deletion.arrived(topic)
        if not self._replica.is_slave:
            self._delayed.arrived(topic, queue_id)
        self._long_polls.arrived(topic, queue_id, codes)

    def _handlers(self) -> Mapping[int, Handler]:
        locks = LockProcessor(
            self._locks,
            saver=self._lock_saver,
            directory=self._directory,
            broker_name=self._settings.broker_name,
            from_ns=now_ns() + int(self._replica.lock_grace_s * 1e9),
        )
        return self._replica.handlers(self._own_handlers(), locks, address=lambda: self.address)

    def _own_handlers(self) -> Mapping[int, Handler]:
        reader, directory = self._store.reader, self._directory
        retries = RetryTopics(directory, groups=self._group_directory, locks=self._locks)
        return {
            **SendProcessor(
                self._settings,
                store=self._store,
                directory=directory,
                retries=retries,
                store_host=lambda: self._store_host,
            ).handlers(),
            **SendBackProcessor(
                self._store,
                retries,
                self._settings.delay_rules,
                store_host=lambda: self._store_host,
            ).handlers(),
            **PullProcessor(
                reader,
                directory=directory,
                groups=self._groups,
                group_directory=self._group_directory,
                offsets=self._offsets,
                long_polls=self._long_polls,
                traffic=self._sampler.traffic,
            ).handlers(),
            **QueryProcessor(reader, lookup=self._keys).handlers(),
            **OffsetProcessor(reader, directory=directory, offsets=self._offsets).handlers(),
            **self._clients.handlers(),
            **TransactionProcessor(self._transactions).handlers(),
            **DeleteProcessor(self._deletion).handlers(),
            **RecallProcessor(
                self._delayed, directory=directory, broker_name=self._settings.broker_name
            ).handlers(),
            **self._administration(),
        }

    def _administration(self) -> Mapping[int, Handler]:
        return administration(
            self._settings,
            reader=self._store.reader,
            topics=self._directory,
            groups=self._groups,
            group_directory=self._group_directory,
            producers=self._producers,
            offsets=self._offsets,
            offset_saver=self._offset_saver,
            traffic=self._sampler.traffic,
            address=lambda: self.address,
            delete_expired=self._delete_expired,
        )

    def _adopt_address(self, listening: str) -> None:
        self._store_host, self.address = own_address(
            listening,
            advertise_host=self._settings.advertise_host,
            nameservers=self._settings.nameserver,
        )

    async def _register(self) -> None:
        self._registration = Registration(
            self._settings.nameserver,
            broker_name=self._settings.broker_name,
            cluster_name=self._settings.cluster_name,
            address=self.address,
            content=lambda: BrokerRegistration(
                topics={config.topic: config for config in self._topics},
                version=self._topics.version,
            ),
            broker_id=self._settings.broker_id,
        )
        await self._registration.start()

    async def _find_master(self) -> str | None:
        if self._registration is None:
            return None
        await self._registration.refresh()
        return self._registration.master_address

    def _connection_closed(self, channel: RemotingChannel) -> None:
        self._clients.connection_closed(channel)
        self._replica.connection_closed(channel)

    async def _announce(self) -> None:
        if self._registration is not None:
            await self._registration.refresh()

    def _keep_house(self) -> None:
        for name, every_s, action in (
            ("save tables", _SAVE_EVERY_S, self._save_tables),
            ("end silent members and locks", _SWEEP_EVERY_S, self._sweep),
            ("delete old messages", _RETENTION_EVERY_S, self._delete_expired),
        ):
            self._housekeeping.append(spawn(repeated(every_s, action, name), name=name))

    async def _delete_expired(self) -> None:
        await (self._replica.delete_expired() if self._replica.is_slave else self._retention.run())

    async def _save_tables(self) -> None:
        await self._group_directory.save()
        await self._offset_saver.save()
        await self._lock_saver.save()
        await self._directory.save()
        await self._delayed.save()

    async def _sweep(self) -> None:
        self._locks.expire(now_ns())
        self._clients.expire()
