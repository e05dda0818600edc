"""The components of one broker over one opened store, created in the order of their
dependencies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import structlog

from broker_core.broker.admin.topic_deletion import TopicDeletion
from broker_core.broker.delays.delivery import DelayedDelivery
from broker_core.broker.groups.clients_processor import ClientProcessor
from broker_core.broker.groups.configs import GroupConfigs
from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.member_limits import MemberLimits
from broker_core.broker.groups.offset_saver import OffsetSaver
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.groups.producers import Producers
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.broker.groups.retry_topics import RetryTopics
from broker_core.broker.key_lookup import KeyLookup
from broker_core.broker.limits import Limit
from broker_core.broker.own_address import own_address
from broker_core.broker.pulling.long_polls import LongPolls
from broker_core.broker.pulling.open_sessions import OpenSessions
from broker_core.broker.replicas.replica import Replica
from broker_core.broker.retention import Retention, load_clock
from broker_core.broker.sending.counts import SendCounts
from broker_core.broker.settings import BrokerSettings
from broker_core.broker.table_saver import TableSaver, load_table
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.ended_lives import EndedLives
from broker_core.broker.topics.topics import RESERVED_TOPICS, Topics
from broker_core.broker.traffic_sampler import TrafficSampler
from broker_core.broker.transactions.check import TransactionCheck
from broker_core.broker.transactions.coordinator import TransactionCoordinator
from broker_core.broker.unread_messages import UnreadMessages
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import StoreError
from broker_core.names import Group, Topic
from broker_core.remoting_channel import RemotingChannel
from broker_core.store.message_store import MessageStore

_MEMBERS = "give clients lasting names"
_TOPICS = "name fewer topics"

_log = structlog.get_logger("broker")


class Components:
    """The components, for the server that runs them. None of them runs yet."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        replica: Replica,
        *,
        announce: Callable[[Iterable[Topic] | None], Awaitable[None]],
    ) -> None:
        """Read the tables and the waiting messages; blocks. *store* is not started yet.

        Raises StoreError if a table or an index cannot be used, OSError if the disk fails.
        """
        self.settings = settings
        self.store = store
        self.replica = replica
        self.address = settings.listen  # until use_address
        self.store_host = b""
        self.groups: Groups[RemotingChannel] = Groups()
        self.producers: Producers[RemotingChannel] = Producers()
        self.long_polls = LongPolls()
        self.read_sessions = OpenSessions(
            self.long_polls,
            limit=Limit(
                "max_session_queues",
                settings.max_session_queues,
                advice="let clients pull from further queues one by one",
            ),
            batch_wait_ms=settings.batch_wait_ms,
        )
        self.sampler = TrafficSampler(store.reader)
        self.sends = SendCounts()
        self._load_tables()
        self._open_topics(announce)
        self.retries = RetryTopics(self.directory, groups=self.group_directory, locks=self.locks)
        self.clients = ClientProcessor(
            self.groups,
            producers=self.producers,
            retries=self.retries,
            limits=MemberLimits(
                per_group=Limit("max_group_members", settings.max_group_members, advice=_MEMBERS),
                in_all=Limit("max_members", settings.max_members, advice=_MEMBERS),
                topics=Limit("max_member_topics", settings.max_member_topics, advice=_TOPICS),
            ),
        )
        self._open_what_waits()
        self.keys = KeyLookup(store, settings)

    def use_address(self, listening: str) -> None:
        """Use the address, host:port, on which the server listens."""
        self.store_host, self.address = own_address(
            listening,
            advertise_host=self.settings.advertise_host,
            nameservers=self.settings.nameserver,
        )

    def arrived(self, topic: Topic, queue_id: int, codes: frozenset[int]) -> None:
        """Notify the components of newly visible messages. Called by the store."""
        self.deletion.arrived(topic)
        if not self.replica.is_slave:
            self.delayed.arrived(topic, queue_id)
        self.long_polls.arrived(topic, queue_id, codes)

    def connection_closed(self, channel: RemotingChannel) -> None:
        """Notify the components of the end of a client's or replica's connection. Called by the
        server.
        """
        self.clients.connection_closed(channel)
        self.read_sessions.connection_closed(channel)
        self.replica.connection_closed(channel)

    async def save_tables(self) -> None:
        """Save tables with changes. Raise OSError."""
        await self.group_directory.save()
        await self.offset_saver.save()
        await self.lock_saver.save()
        await self.directory.save()
        await self.delayed.save()

    async def fold_tables(self) -> None:
        """Write tables whole, as the versions before journals read them. Raise OSError."""
        await self.group_directory.fold()
        await self.offset_saver.fold()
        await self.directory.fold()

    def _groups_in_use(self) -> set[Group]:
        return {*self.groups, *self.offsets.groups(), *self.locks.groups()}

    async def sweep(self) -> None:
        """Remove silent members and expired locks."""
        self.locks.expire(now_ns())
        self.clients.expire()
        if self.locks.ages_to_save(now_ns()):
            await self.lock_saver.save()

    async def delete_expired(self) -> None:
        """Apply the retention; on a slave, delete what its master has deleted. Raise OSError."""
        if self.replica.is_slave:
            await self.retention.look()
            await self.replica.delete_expired()
        else:
            await self.retention.run()

    def _load_tables(self) -> None:
        store, settings = self.store, self.settings
        topic_table = store.journaled_table("topics")
        self._require_topics(store)
        self._topics = load_table(topic_table, Topics.from_table)
        self._topics.offer_system_topics()
        if settings.auto_create_topics:
            self._topics.offer_template(settings.default_queues)
        self._topic_table = topic_table
        group_table = store.journaled_table("subscriptionGroup")
        self.group_directory = GroupDirectory(
            load_table(group_table, GroupConfigs.from_table),
            group_table,
            auto_create=settings.auto_create_groups,
            limit=Limit("max_groups", settings.max_groups, advice="delete unused groups"),
            in_use=self._groups_in_use,
            forgotten=self.sampler.traffic.forget,
        )
        offset_table = store.journaled_table("consumerOffset")
        self.offsets = load_table(offset_table, CommittedOffsets.from_table)
        lock_table = store.table("orderlyLock")
        self.locks = load_table(
            lock_table,
            lambda table: QueueLocks.from_table(
                table,
                expiry_ns=int(settings.lock_expiry_s * 1e9),
                now_ns=now_ns(),
                begun_ms=wall_ms(),
            ),
        )
        #: True if locks that were granted may be missing: none is granted until they expired.
        self.locks_in_doubt = lock_table.used_copy
        # Before clamping: a clamped table differs from the file.
        self.offsets.limit_to(
            Limit("max_offsets", settings.max_offsets, advice="delete unused groups")
        )
        self.offset_saver = OffsetSaver(
            offset_table,
            self.offsets,
            # With flush="async" offsets of messages not yet on disk may be committed.
            before=store.sync,
        )
        self.lock_saver = TableSaver(
            store.table("orderlyLock"),
            content=self.locks.to_table,
            change=lambda: self.locks.change,
        )

    def _require_topics(self, store: MessageStore) -> None:
        """Raise StoreError if the log has messages of topics, but the table of topics is lost.

        Made from the log, it might have fewer queues than before: keys would change their queues.
        """
        table = store.table("topics")
        if self.replica.is_slave or table.exists():
            return
        topics = {topic for topic, _, _ in store.queues.named()}
        lost = sorted(topics - RESERVED_TOPICS)
        if lost:
            raise StoreError(
                f"table {table.path} is missing, but the log has messages of topic {lost[0]}"
                f" (topics in all: {len(lost)}): restore the table, or write {{}} into it and"
                " create the topics again with as many queues as they had"
            )

    def _open_topics(self, announce: Callable[[Iterable[Topic] | None], Awaitable[None]]) -> None:
        store = self.store
        self.directory = TopicDirectory(
            self._topics,
            self._topic_table,
            announce=announce,
            read_only=self.replica.is_slave,
            is_deleting=store.is_deletion_pending,
            limit=Limit("max_topics", self.settings.max_topics, advice="delete unused topics"),
        )
        self.deletion = TopicDeletion(
            store,
            directory=self.directory,
            offsets=self.offsets,
            offset_saver=self.offset_saver,
            long_polls=self.long_polls,
            traffic=self.sampler.traffic,
        )
        self.deletion.catch_up()
        store.refuse_deleted(self._topics.deletions)
        clamped = self.offsets.clamp(store.reader.next_offset)
        for offset in clamped:
            _log.warning("committed offset beyond the recovered queue", **offset._asdict())
        lost = store.recovery.dropped
        if clamped or lost or self.replica.was_promoted:
            # Perhaps none is lost; but a missing fence is better than a group that cannot commit.
            self.offsets.forget_epochs()

    def _open_what_waits(self) -> None:
        self.ended_lives = EndedLives(self.store)
        self.transactions = TransactionCoordinator(
            self.store,
            ended_lives=self.ended_lives,
            rules=self.settings.check_rules(),
            directory=self.directory,
            offsets=self.offsets,
            store_host=lambda: self.store_host,
        )
        self.transactions.load()
        self.transaction_check = TransactionCheck(
            self.transactions,
            self.producers,
            interval_s=self.settings.transaction_check_interval_s,
            broker_name=self.settings.broker_name,
        )
        self.delayed = DelayedDelivery(
            self.store,
            self._topics,
            ended_lives=self.ended_lives,
            store_host=lambda: self.store_host,
            was_promoted=self.replica.was_promoted,
        )
        clock_table = self.store.table("retentionClock")
        self.retention = Retention(
            self.settings,
            store=self.store,
            delayed=self.delayed,
            keep_from=self.transactions.oldest_place,
            clock=load_clock(
                clock_table, self.settings, newest_ms=self.store.recovery.last_store_ms
            ),
            clock_table=clock_table,
            unread=UnreadMessages(self.offsets, self.store.queues),
        )
