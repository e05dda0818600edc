"""The handlers of one broker by request code, collected from its components."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker_core.access.file import CallerRights
from broker_core.broker.admin.runtime_processor import RuntimeProcessor
from broker_core.broker.admin.topic_deletion_processor import DeleteProcessor
from broker_core.broker.components import Components
from broker_core.broker.delays.recalling_processor import RecallProcessor
from broker_core.broker.groups.configs_processor import GroupProcessor
from broker_core.broker.groups.connections_processor import ConnectionProcessor
from broker_core.broker.groups.locks_processor import LockProcessor
from broker_core.broker.groups.offsets_processor import OffsetProcessor
from broker_core.broker.groups.progress import Progress
from broker_core.broker.groups.progress_processor import ProgressProcessor
from broker_core.broker.groups.read_lives import ReadLives
from broker_core.broker.groups.renewal_processor import RenewalProcessor
from broker_core.broker.groups.resetting_processor import ResetProcessor
from broker_core.broker.limits import Limit
from broker_core.broker.pulling.processor import PullProcessor
from broker_core.broker.pulling.queries_processor import QueryProcessor
from broker_core.broker.pulling.queue_reads import QueueReads
from broker_core.broker.pulling.session_processor import SessionProcessor
from broker_core.broker.sending.processor import SendProcessor
from broker_core.broker.sending.sending_back_processor import SendBackProcessor
from broker_core.broker.together import TogetherProcessor
from broker_core.broker.topics.processor import AdminProcessor
from broker_core.broker.transactions.processor import TransactionProcessor
from broker_core.clock import now_ns, wall_ms
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import Handler, RemotingChannel


def handlers_of(
    components: Components,
    *,
    rights_of: Callable[[RemotingCommand, RemotingChannel], CallerRights | None] = (
        lambda request, channel: None
    ),
) -> Mapping[int, Handler]:
    """Return the handlers that the broker's role permits; the broker's start time is now.

    *rights_of* returns the rights of a request's account, None if it may do everything.
    """
    grace_s = components.replica.lock_grace_s
    if components.locks_in_doubt:
        grace_s = components.settings.lock_expiry_s
    locks = LockProcessor(
        components.locks,
        saver=components.lock_saver,
        directory=components.directory,
        broker_name=components.settings.broker_name,
        from_ns=now_ns() + int(grace_s * 1e9),
        groups=components.group_directory,
        limit=Limit(
            "max_locks", components.settings.max_locks, advice="use fewer groups or queues"
        ),
    )
    renewals = RenewalProcessor(
        components.locks,
        saver=components.lock_saver,
        directory=components.directory,
        broker_name=components.settings.broker_name,
        from_ns=now_ns() + int(components.replica.lock_grace_s * 1e9),
    )
    sends, lives = _sends(components), ReadLives()
    offsets = _offsets(components, lives)
    own = {
        # In strict mode a majority renews.
        **({} if components.settings.lock_in_strict_mode else renewals.handlers()),
        **_of_producers(components, sends, rights_of=rights_of),
        **_of_consumers(components, offsets, lives, rights_of=rights_of),
        **TogetherProcessor(offsets, sends, rights_of=rights_of).handlers(),
        **components.clients.handlers(),
        **_of_administrators(components),
    }
    return components.replica.handlers(own, locks, address=lambda: components.address)


def _sends(components: Components) -> SendProcessor:
    return SendProcessor(
        components.settings,
        store=components.store,
        directory=components.directory,
        retries=components.retries,
        counts=components.sends,
        store_host=lambda: components.store_host,
    )


def _offsets(components: Components, lives: ReadLives) -> OffsetProcessor:
    return OffsetProcessor(
        components.store.reader,
        directory=components.directory,
        offsets=components.offsets,
        saver=components.offset_saver,
        lives=lives,
        groups=components.group_directory,
    )


def _of_producers(
    components: Components,
    sends: SendProcessor,
    *,
    rights_of: Callable[[RemotingCommand, RemotingChannel], CallerRights | None],
) -> dict[int, Handler]:
    return {
        **sends.handlers(),
        **SendBackProcessor(
            components.store,
            components.retries,
            components.settings.delay_rules,
            ended_lives=components.ended_lives,
            store_host=lambda: components.store_host,
            rights_of=rights_of,
        ).handlers(),
        **TransactionProcessor(components.transactions, rights_of=rights_of).handlers(),
        **RecallProcessor(
            components.delayed,
            directory=components.directory,
            broker_name=components.settings.broker_name,
        ).handlers(),
    }


def _of_consumers(
    components: Components,
    offsets: OffsetProcessor,
    lives: ReadLives,
    *,
    rights_of: Callable[[RemotingCommand, RemotingChannel], CallerRights | None],
) -> dict[int, Handler]:
    reader = components.store.reader
    reads = QueueReads(
        reader,
        directory=components.directory,
        group_directory=components.group_directory,
        traffic=components.sampler.traffic,
        lives=lives,
    )
    return {
        **SessionProcessor(reads, components.read_sessions, rights_of=rights_of).handlers(),
        **PullProcessor(
            reader,
            directory=components.directory,
            groups=components.groups,
            group_directory=components.group_directory,
            offsets=offsets,
            long_polls=components.long_polls,
            traffic=components.sampler.traffic,
            lives=lives,
        ).handlers(),
        **QueryProcessor(reader, lookup=components.keys).handlers(),
        **offsets.handlers(),
    }


def _of_administrators(components: Components) -> dict[int, Handler]:
    return {
        **AdminProcessor(components.directory).handlers(),
        **DeleteProcessor(components.deletion).handlers(),
        **ConnectionProcessor(components.groups, components.producers).handlers(),
        **GroupProcessor(
            components.group_directory,
            offsets=components.offsets,
            offset_saver=components.offset_saver,
            traffic=components.sampler.traffic,
        ).handlers(),
        **RuntimeProcessor(
            components.settings,
            reader=components.store.reader,
            traffic=components.sampler.traffic,
            boot_ms=wall_ms(),
            locks_since_ms=components.locks.since_ms,
            retention=components.retention.shown,
            confirm_clock=components.retention.confirm_clock,
            address=lambda: components.address,
            delete_expired=components.delete_expired,
            replica_figures=components.replica.figures,
        ).handlers(),
        **_of_progress(components),
    }


def _of_progress(components: Components) -> dict[int, Handler]:
    progress = Progress(
        broker_name=components.settings.broker_name,
        reader=components.store.reader,
        topics=components.directory.topics,
        groups=components.groups,
        offsets=components.offsets,
        traffic=components.sampler.traffic,
    )
    return {
        **ProgressProcessor(
            progress,
            group_directory=components.group_directory,
            offset_saver=components.offset_saver,
            address=lambda: components.address,
        ).handlers(),
        **ResetProcessor(
            components.store.reader,
            broker_name=components.settings.broker_name,
            topics=components.directory,
            groups=components.groups,
            offsets=components.offsets,
            offset_saver=components.offset_saver,
        ).handlers(),
    }
