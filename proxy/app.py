"""The composition root of a proxy: creates, connects, starts and stops its components in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from prometheus_client.registry import Collector

from broker_core.client import BrokerClient, Membership
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.tasks import cancel_and_wait, spawn
from proxy.admin.access import AccessSurface, access_figures, warn_of_expiries
from proxy.admin.clients import ClientSurface
from proxy.admin.desks import desk_operations
from proxy.admin.diagnoses import Diagnoses, DiagnosisSurface
from proxy.admin.guard import Guard, is_loopback
from proxy.admin.http import AdminHttp
from proxy.admin.http_connections import HttpConnections
from proxy.admin.metric_families import Scrape
from proxy.admin.metrics_collector import ProxyCollector
from proxy.admin.signing_keys import SigningKeys
from proxy.admin.snapshots import groups_view
from proxy.broadcast import follow_group, give_up_clients, leave_clients
from proxy.console.surface import Console
from proxy.core.broadcast.departed_clients import records_of
from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.core.jobs.chains import Job
from proxy.core.jobs.memory_relief import Relief
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.delivery.deliverer import Deliverer
from proxy.delivery.deliverers import access_of, make_deliverer, undeliverable
from proxy.delivery.self_delivery import OpenConnections, SelfDelivery
from proxy.downstream.bulk.service import BulkService
from proxy.downstream.consumer_service import ConsumerService
from proxy.downstream.port.gate import Gate
from proxy.downstream.port.load import Load
from proxy.downstream.port.server import ThriftServer
from proxy.downstream.producer_service import ProducerService
from proxy.history.record import History, NullHistory
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.lane.sides import Sides
from proxy.lane.tracing import Spans, spans_of, tracing_of
from proxy.listening import Addresses, Listening
from proxy.live.configuration import Configuration
from proxy.live.group_store import GroupStore
from proxy.live.live_groups import Source
from proxy.live.settings_file import SettingsFile
from proxy.live.shared_keys import store_keys_of
from proxy.net.jwt_tokens import JwtTokens
from proxy.net.principals import Principals, quotas_of
from proxy.net.process_name import client_id, reachable
from proxy.net.refusal_log import RefusalLog
from proxy.net.secrets import credentials_of
from proxy.net.tls import broker_context
from proxy.observe.clock_watch import watch_clocks
from proxy.observe.logs import NoisyLog
from proxy.operator.dead_letter_desk import DeadLetterDesk
from proxy.operator.key_board import KeyBoard
from proxy.operator.key_desk import KeyDesk
from proxy.operator.owner_desk import Doors
from proxy.settings.delivery import DeliverySettings
from proxy.settings.groups import GroupSettings
from proxy.settings.proxy_settings import Settings
from proxy.upstream.client_sweep import ClientSweep
from proxy.upstream.commits.committer import Committer
from proxy.upstream.context import UpstreamContext
from proxy.upstream.dead_letters.copier import DeadLetters
from proxy.upstream.key_changes import KeyChanges
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.kept_records import KeptRecords
from proxy.upstream.ownership.lock_renewals import LockRenewals
from proxy.upstream.ownership.owner_book import OwnerBook
from proxy.upstream.ownership.ownerships import Ownerships
from proxy.upstream.parking.parked_keys import Parking
from proxy.upstream.parking.retention import watch_retention
from proxy.upstream.reading.refills import Refills
from proxy.upstream.records.ownership_log import OwnershipLog
from proxy.upstream.records.recorder import Recorder
from proxy.upstream.unowned_queues import UnownedQueues

_log = structlog.get_logger("proxy")
_noisy = NoisyLog(_log)

#: Seconds to leave groups that were not left before; usually none are.
_LEAVE_S = 2.0
#: Seconds after ``drain_s`` for the last records and commits of a drain.
_LAST_RECORDS_S = 5.0
#: Minimum interval between ``settled`` signals, in s.
_SETTLED_WITHIN_S = 0.005


class Proxy:
    """One consumer proxy. Call ``start``, then ``close`` (which drains), once each."""

    def __init__(
        self,
        settings: Settings,
        *,
        history: History | None = None,
        file: SettingsFile | None = None,
        spans: Spans | None = None,
        collectors: Sequence[Collector] = (),
    ) -> None:
        """Create the components.

        Args:
            settings: The settings of the process.
            history: Records deliveries for checks, if given.
            file: The source of *settings*; its groups are reloaded when it changes.
            spans: Receives spans instead of the exporter in the settings.
            collectors: Further metrics of the process, for its /metrics.
        """
        self.settings = settings
        self._collectors = collectors
        self._access = access_of(settings)
        self._history = history or NullHistory()
        self._client = self._make_client()
        self._spans = spans or spans_of(settings.tracing, instance=self._client.client_id)
        self._context = self._make_context()
        self._committer = Committer(self._context)
        self._dead_letters = DeadLetters(self._context)
        self._dead_letter_desk = DeadLetterDesk(
            self._context, is_known=lambda group: self._lanes.find(group) is not None
        )
        self._refills = Refills(self._context)
        self._key_changes = KeyChanges(self._context, self._refills)
        self._ownerships = Ownerships()
        self._renewals = LockRenewals(self._context, self._ownerships)
        self._lanes = Lanes(
            self._make_lane,
            auto_create=settings.auto_create_groups,
            max_groups=settings.limits.max_groups,
            max_group_topics=settings.limits.max_group_topics,
            unserved=self._unserved,
        )
        self._unowned = UnownedQueues(self._client, self._context.log, self._lanes)
        self._load = Load(settings.limits.max_inflight_bytes)
        self._consumers = ConsumerService(self._lanes, settings.limits, self._load)
        self._configuration = self._make_configuration(file)
        self._deliveries = SelfDelivery(
            self._make_deliverer,
            self._client.client_id,
            settings.limits.max_answer_bytes,
            source_of=self._configuration.live.source_of,
        )
        self._sides = Sides(self._consumers.dispatch, self._deliveries.dispatch)
        self._producers = ProducerService(
            self._client, self._history, max_body_bytes=settings.limits.max_answer_bytes
        )
        self._jwt = None if settings.jwt is None else JwtTokens(settings.jwt)
        self._signing_keys = (
            None
            if settings.jwt is None or self._jwt is None
            else SigningKeys(settings.jwt, self._jwt)
        )
        self._principals = Principals(settings, jwt=self._jwt)
        self._quotas = quotas_of(settings, self._principals.names)
        self._refusals = RefusalLog()
        self._gate = Gate(
            self._principals,
            topics_of=self._topics_served,
            asked_as=self._lanes.asked_as,
            quotas=self._quotas,
            refusals=self._refusals,
        )
        self._guard = Guard(
            self._principals,
            loopback=is_loopback(settings.listen.http),
            topics_of=self._topics_of,
            quotas=self._quotas,
            refusals=self._refusals,
        )
        self._bulk = self._make_bulk()
        methods = self._consumers.entries() | self._bulk.entries() | self._producers.entries()
        self._thrift = ThriftServer(self._gate.guarded(methods), settings.limits, self._load)
        self._listening = Listening(settings.listen, self._thrift)
        self.console = Console(
            self._lanes, self._groups_view, self._about, self._load, self._unowned
        )
        self._diagnoses = self._make_diagnoses()
        self._http = self._make_http()
        self._regular: list[asyncio.Task[None]] = []
        self._served = self._draining = self._reached_nameserver = False

    @property
    def lanes(self) -> Lanes:
        """Lanes of its groups."""
        return self._lanes

    @property
    def client_id(self) -> str:
        """Name of this process as a member of its groups; new for every process."""
        return self._client.client_id

    @property
    def context(self) -> UpstreamContext:
        """Context shared by the components that face brokers."""
        return self._context

    @property
    def groups(self) -> frozenset[Group]:
        """Groups whose queues it may own; each client of a broadcast group counts as one."""
        return frozenset(self._ownerships)

    @property
    def servers(self) -> tuple[ThriftServer, AdminHttp]:
        """The two servers for clients, which also take passed connections."""
        return self._thrift, self._http

    @property
    def file_digest(self) -> str:
        """Digest of the settings file's content whose groups are served; "" without a file."""
        return self._configuration.file_digest

    @property
    def stopping(self) -> bool:
        """True once it drains because its process ends."""
        return self._draining

    def reload(self) -> None:
        """Read the settings file again now."""
        self._configuration.reload()

    def parking(self, group: Group, queue: QueueName) -> Parking | None:
        """Return the parked keys of *queue*; None if this proxy does not own it."""
        ownership = self._ownerships.get(group)
        return None if ownership is None else ownership.parking(queue)

    def _parkings(self) -> Iterator[Parking]:
        for ownership in self._ownerships.values():
            yield from ownership.parkings()

    async def start(self) -> Addresses:
        """Listen and serve. Raises OrderlaneError if a port or a certificate is not available."""
        await self._client.start()
        self._configuration.start(self.settings.groups)
        recording = self._context.recorder.run(
            self._lanes, every_s=self.settings.ownership.record_every_s
        )
        kept_records = KeptRecords(self._context, self._lanes, self._ownerships)
        leave_after_s = self.settings.ownership.leave_after_s
        leaving = leave_clients(self._lanes, self._forget, leave_after_s=leave_after_s)
        self._regular = [
            spawn(self._committer.run(self._lanes), name="committer"),
            spawn(recording, name="recorder"),
            spawn(self._renewals.run(), name="renew locks"),
            spawn(self._key_changes.run(self._lanes), name="order keys"),
            spawn(watch_retention(self._context, self._parkings), name="retention"),
            spawn(kept_records.run(), name="kept records"),
            spawn(watch_clocks(self._context.clock_jumps), name="clocks"),
            spawn(leaving, name="leave clients"),
            spawn(ClientSweep(self._context, self._lanes).run(), name="forget clients"),
            spawn(
                self._unowned.run(every_s=self.settings.metrics.lag_every_s),
                name="unowned queues",
            ),
        ]
        if self._signing_keys is not None:
            self._regular.append(spawn(self._signing_keys.run(), name="signing keys"))
        warn_of_expiries(self._principals)
        at = await self._listening.open(self._http)
        self._regular.append(spawn(self._listening.follow_certificates(), name="certificates"))
        self._context.serve_http(reachable(at.http, self.client_id))
        self._context.serve_thrift(reachable(at.thrift, self.client_id))
        self.console.start()
        self._served = True
        _log.info("proxy ready", thrift=at.thrift, http=at.http, client_id=self.client_id)
        return at

    async def close(self) -> None:
        """Drain: hand over all queues, answer waiting requests, then stop."""
        self._draining = True
        if self._served:
            _log.info("proxy drains: it waits for leased messages and hands its queues over")
        self._history.write("term")
        await self._configuration.close()
        self._thrift.stop_listening()
        self._consumers.close()
        self._deliveries.stop()
        await self._producers.transactions.close()
        await self._hand_over_all()
        await self._deliveries.close()
        await cancel_and_wait(
            *self._regular,
            *self._dead_letters.tasks(),
            *self._refills.tasks(),
            *self._key_changes.tasks(),
        )
        for lane in self._lanes:
            lane.close()
        await self._thrift.close()
        await self.console.close()
        await self._diagnoses.close()
        await self._http.close()
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._context.membership.close()
        except TimeoutError:  # a broker does not answer
            await self._context.membership.stop()
        await self._client.close()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)
        self._history.close()
        if self._served:
            _log.info("proxy stopped")

    async def _hand_over_all(self) -> None:
        """Hand all queues over within ``drain_s`` and the time for last records; abandon the rest.

        The locks of abandoned queues expire, and their next owners wait for it, as after a crash.
        """
        closing = {
            spawn(ownership.close(), name=f"leave {ownership.group}"): ownership
            for ownership in self._ownerships.values()
        }
        desk = spawn(self._dead_letter_desk.close(), name="close the dead-letter desk")
        within_s = self.settings.ownership.drain_s + _LAST_RECORDS_S
        _, late = await asyncio.wait([*closing, desk], timeout=within_s)
        if not late:
            return
        left = [closing[task] for task in late if task in closing]
        _log.warning(
            "queues are not handed over within ownership.drain_s: their locks expire, and their"
            " next owners wait for that",
            groups=len(left),
            queues=sum(ownership.held for ownership in left),
            waited_s=within_s,
        )
        await cancel_and_wait(*late)
        await asyncio.gather(*(ownership.abandon() for ownership in left))

    # ---- callbacks between components -----------------------------------------------------------

    def on_ready(self, lane: GroupLane) -> None:
        """Serve waiting clients, and deliver what the proxy delivers itself: jobs may have become
        ready.
        """
        self._sides.dispatch(lane)

    def on_dead_letter(self, lane: GroupLane, pipeline: QueuePipeline, job: Job) -> None:
        """Send *job* to the dead-letter topic."""
        self._dead_letters.store(lane, pipeline, job)

    def on_refill(self, lane: GroupLane, pipeline: QueuePipeline, refill: Refill) -> None:
        """Read spilled messages again."""
        self._refills.read(lane, pipeline, refill)

    def on_parking(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        """Continue parking or redriving keys."""
        if (ownership := self._ownerships.get(lane.name)) is not None:
            ownership.on_parking(pipeline)

    def on_wanted(self, lane: GroupLane) -> None:
        """Join a group: a client asked for one of its topics."""
        if (ownership := self._ownerships.get(lane.name)) is not None:
            ownership.wake()

    def on_settled(self) -> None:
        """Signal freed memory or an ended lease, at a limited rate: it happens with each ack."""
        self._context.settled.fire_soon(_SETTLED_WITHIN_S)

    def _topics_of(self, group: str) -> list[str]:
        lane = self._lanes.find(group)
        return [] if lane is None else [topic.name for topic in lane.settings.topics]

    def _unserved(self, group: str) -> str:
        return self._configuration.unserved(group)

    def _topics_served(self, group: str) -> list[str]:
        """Return the topics of *group*. Raises Unavailable like ``Lanes.check_settings``."""
        self._lanes.check_settings(group)
        return self._topics_of(group)

    def _on_consumers_changed(self, group: Group) -> None:
        if (ownership := self._ownerships.get(group)) is not None:
            ownership.wake()

    def _on_broker_lost(self, broker: str) -> None:
        self._renewals.broker_lost(broker)
        self._committer.broker_lost(broker)
        for ownership in self._ownerships.values():
            ownership.broker_lost(broker)

    def _make_client(self) -> BrokerClient:
        settings = self.settings
        return BrokerClient(
            nameservers=settings.nameserver,
            client_id=client_id(),
            on_consumers_changed=self._on_consumers_changed,
            on_broker_lost=self._on_broker_lost,
            credentials=credentials_of(settings.broker_account, self._access.secrets),
            tls=broker_context(settings.broker_tls),
            sends_create_topics=False,  # the producer service creates topics, at all brokers
        )

    def _make_context(self) -> UpstreamContext:
        settings, log = self.settings, OwnershipLog(self._client, send=self._client.send_together)
        return UpstreamContext(
            client=self._client,
            # Once its locks must have expired, a hanging proxy also leaves the groups.
            membership=Membership(self._client, expiry_s=settings.lock.broker_lock_expiry_s),
            settings=settings,
            history=self._history,
            memory=Budget(settings.limits.memory_bytes, relief=Relief(on_bug=_no_relief)),
            log=log,
            recorder=Recorder(log),
            sessions=self._client.sessions,
        )

    def _make_lane(self, settings: GroupSettings) -> GroupLane:
        lane = GroupLane(
            settings=settings,
            memory=self._context.memory,
            history=self._history,
            listener=self,
            open_connections=OpenConnections(self._thrift.open),
            batch_wait_ms=self.settings.limits.batch_wait_ms,
            tracing=tracing_of(self._spans, Group(settings.name)),
        )
        self._ownerships[lane.name] = GroupOwnership(
            self._context, self._committer, lane, renews=False
        )
        self._deliveries.apply(lane)
        return lane

    def _make_bulk(self) -> BulkService:
        return BulkService(
            self._client,
            self._lanes,
            self.settings.limits,
            served_ns=self._consumers.last_served_ns,
            has_owner=self._context.log.any_owner,
            load=self._load,
            may=self._gate.may,
        )

    def _make_configuration(self, file: SettingsFile | None) -> Configuration:
        store = None
        if self.settings.group_store == "nameserver":
            keys = store_keys_of(self.settings, self._access.secrets)
            store = GroupStore(self._client.key_values, keys)
        return Configuration(
            self._lanes,
            file=file,
            store=store,
            audit=self._context.audit,
            changed=self._group_changed,
            give_up=self._give_up,
            unservable=self._unservable,
        )

    def _access_from(self, source: Source | None) -> ReceiverAccess:
        return replace(self._access, from_file=source is not Source.STORE)

    def _unservable(self, source: Source, groups: Iterable[GroupSettings]) -> Iterator[str]:
        return undeliverable(groups, self._access_from(source))

    def _make_deliverer(self, group: Group, topic: Topic, settings: DeliverySettings) -> Deliverer:
        access = self._access_from(self._configuration.live.source_of(group))
        return make_deliverer(group, topic, settings, access=access)

    def _group_changed(self, lane: GroupLane) -> None:
        self._deliveries.apply(lane)
        self._consumers.topics_changed(lane)
        follow_group(self._lanes, lane, self._consumers.topics_changed)

    async def _give_up(self, lane: GroupLane) -> None:
        """Hand over the queues of a removed group and forget it."""
        await give_up_clients(self._lanes, lane, self._give_up)
        self._deliveries.forget(lane)
        self._consumers.group_removed(lane.name)
        await self._ownerships[lane.name].close()
        await self._forget(lane)

    async def _forget(self, lane: GroupLane) -> None:
        """Forget a group without queues. A group of the same name may be added meanwhile."""
        ownership = self._ownerships.pop(lane.name)
        lane.close()
        self._bulk.forget(lane.name)
        self._consumers.group_removed(lane.name)
        await ownership.close()
        self._context.log.forget(records_of(lane.name, ownership.topics))
        self._context.take_overs.forget(lane.name)

    def _make_http(self) -> AdminHttp:
        collector = ProxyCollector(
            self._lanes,
            self._context.memory,
            self._figures,
            redriven=self._dead_letter_desk.counts,
            bulk=self._bulk.figures,
            configuration=self._configuration.figures,
            deliveries=self._deliveries.figures,
            limits=self._load.figures,
            access=partial(
                access_figures,
                self._quotas,
                self._principals,
                self._signing_keys,
                self._listening.revocations_end_in_s,
            ),
            retention=self._context.log.ranges.retention,
            replicas=self._context.log.ranges.replicas,
            sends=self._producers.counts,
            unowned=self._unowned,
            per_queue=self.settings.metrics.per_queue,
        )
        doors = Doors(
            self._thrift.stop_listening,
            self._thrift.disconnect_all,
            self._listening.open_client_ports,
        )
        self._connections = HttpConnections(self.settings.limits, self._load)
        return AdminHttp(
            connections=self._connections,
            scrape=Scrape(collector, *self._collectors),
            not_ready=self._not_ready,
            groups=self._groups_view,
            guard=self._guard,
            operations=[
                *desk_operations(
                    self._context,
                    self._lanes,
                    self._ownerships,
                    self._configuration,
                    self._dead_letter_desk,
                    doors,
                ),
                *ClientSurface(self._thrift.open, self._lanes).operations(),
                *AccessSurface(self._quotas, self._principals, self._refusals.book).operations(),
                *DiagnosisSurface(self._diagnoses).operations(),
                *self.console.operations(),
            ],
        )

    async def _groups_view(self) -> dict[str, Any]:
        return await groups_view(
            self._lanes, self._bulk.reading(), self._deliveries.view, self._unowned
        )

    async def _group_view(self, lane: GroupLane) -> dict[str, Any]:
        found = await groups_view(
            [lane], self._bulk.reading(), self._deliveries.view, self._unowned
        )
        return dict(found[lane.name])

    def _make_diagnoses(self) -> Diagnoses:
        """Return the diagnoses of groups, from this proxy's view of them and its brokers."""
        book = OwnerBook(self._context.client, self._context.log)
        return Diagnoses(
            self._context,
            self._lanes,
            self._group_view,
            lambda name: bool(self._configuration.desk.describe(name)["version"]),
            KeyBoard(self._context, self._ownerships, book),
            KeyDesk(self._context, self._ownerships, book),
            self._refusals.book,
        )

    def _about(self) -> dict[str, Any]:
        return {
            "proxy": self.client_id,
            "http": self._context.http,
            "drained": self._context.away,
            "brokers_away": self._unowned.brokers_away,
        }

    def _figures(self) -> dict[str, float]:
        return {
            "inflight_bytes": self._load.used,
            "connections": len(self._thrift.open),
            "bad_frames": self._thrift.bad_frames,
            "refused": self._thrift.refused_connections + self._connections.refused,
            "refused_calls": self._gate.refused + self._guard.refused,
            "replayed": self._consumers.replayed,
            "skipped_acks": self._consumers.skipped_acks,
            "refused_acks": self._bulk.refused_acks,
            "unknown_names": self._consumers.unknown_names,
            "batch_wait": self.settings.limits.batch_wait_ms / 1000,
        }

    async def _not_ready(self) -> str | None:
        """Return why the proxy is not ready, or None.

        Once it has reached a nameserver it stays ready. If the nameservers fail, all proxies would
        otherwise leave service together, although they still have routes.
        """
        if self._draining:
            return "it is draining"
        if self._context.away:
            return f"it was drained by an operator: {self._context.away}"
        if not self._reached_nameserver:
            try:
                await self._client.topics()
            except RemotingError as error:
                return str(error)
            self._reached_nameserver = True
        return None


def _no_relief(bug: Exception) -> None:
    """Log that one queue failed to give memory back; the others are asked as well."""
    _noisy.warning("relief", "a queue gave no memory back", reason=str(bug), exc_info=bug)
