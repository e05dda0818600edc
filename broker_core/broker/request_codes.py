"""The handlers of one broker by request code, collected from its components."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.admin.runtime_processor import RuntimeProcessor
from broker_core.broker.admin.topic_deletion_processor import DeleteProcessor
from broker_core.broker.components import Parts
from broker_core.broker.delays.recalling_processor import RecallProcessor
from broker_core.broker.groups.configs_processor import GroupProcessor
from broker_core.broker.groups.connections_processor import ConnectionProcessor
from broker_core.broker.groups.locks_processor import LockProcessor
from broker_core.broker.groups.offsets_processor import OffsetProcessor
from broker_core.broker.groups.progress import Progress
from broker_core.broker.groups.progress_processor import ProgressProcessor
from broker_core.broker.groups.read_lives import ReadLives
from broker_core.broker.groups.resetting_processor import ResetProcessor
from broker_core.broker.pulling.processor import PullProcessor
from broker_core.broker.pulling.queries_processor import QueryProcessor
from broker_core.broker.sending.processor import SendProcessor
from broker_core.broker.sending.sending_back_processor import SendBackProcessor
from broker_core.broker.topics.processor import AdminProcessor
from broker_core.broker.transactions.processor import TransactionProcessor
from broker_core.clock import now_ns, wall_ms
from broker_core.remoting_channel import Handler


def served(parts: Parts) -> Mapping[int, Handler]:
    """Return the handlers that the broker's role permits; the broker's start time is now."""
    locks = LockProcessor(
        parts.locks,
        saver=parts.lock_saver,
        directory=parts.directory,
        broker_name=parts.settings.broker_name,
        from_ns=now_ns() + int(parts.replica.lock_grace_s * 1e9),
    )
    own = {
        **_of_producers(parts),
        **_of_consumers(parts),
        **parts.clients.handlers(),
        **_of_administrators(parts),
    }
    return parts.replica.handlers(own, locks, address=lambda: parts.address)


def _of_producers(parts: Parts) -> dict[int, Handler]:
    return {
        **SendProcessor(
            parts.settings,
            store=parts.store,
            directory=parts.directory,
            retries=parts.retries,
            store_host=lambda: parts.store_host,
        ).handlers(),
        **SendBackProcessor(
            parts.store,
            parts.retries,
            parts.settings.delay_rules,
            ended_lives=parts.ended_lives,
            store_host=lambda: parts.store_host,
        ).handlers(),
        **TransactionProcessor(parts.transactions).handlers(),
        **RecallProcessor(
            parts.delayed, directory=parts.directory, broker_name=parts.settings.broker_name
        ).handlers(),
    }


def _of_consumers(parts: Parts) -> dict[int, Handler]:
    reader, lives = parts.store.reader, ReadLives()
    return {
        **PullProcessor(
            reader,
            directory=parts.directory,
            groups=parts.groups,
            group_directory=parts.group_directory,
            offsets=parts.offsets,
            long_polls=parts.long_polls,
            traffic=parts.sampler.traffic,
            lives=lives,
        ).handlers(),
        **QueryProcessor(reader, lookup=parts.keys).handlers(),
        **OffsetProcessor(
            reader,
            directory=parts.directory,
            offsets=parts.offsets,
            saver=parts.offset_saver,
            lives=lives,
        ).handlers(),
    }


def _of_administrators(parts: Parts) -> dict[int, Handler]:
    return {
        **AdminProcessor(parts.directory).handlers(),
        **DeleteProcessor(parts.deletion).handlers(),
        **ConnectionProcessor(parts.groups, parts.producers).handlers(),
        **GroupProcessor(
            parts.group_directory,
            offsets=parts.offsets,
            offset_saver=parts.offset_saver,
            traffic=parts.sampler.traffic,
        ).handlers(),
        **RuntimeProcessor(
            parts.settings,
            reader=parts.store.reader,
            traffic=parts.sampler.traffic,
            boot_ms=wall_ms(),
            address=lambda: parts.address,
            delete_expired=parts.delete_expired,
        ).handlers(),
        **_of_progress(parts),
    }


def _of_progress(parts: Parts) -> dict[int, Handler]:
    progress = Progress(
        broker_name=parts.settings.broker_name,
        reader=parts.store.reader,
        topics=parts.directory.topics,
        groups=parts.groups,
        offsets=parts.offsets,
        traffic=parts.sampler.traffic,
    )
    return {
        **ProgressProcessor(
            progress,
            group_directory=parts.group_directory,
            offset_saver=parts.offset_saver,
            address=lambda: parts.address,
        ).handlers(),
        **ResetProcessor(
            parts.store.reader,
            broker_name=parts.settings.broker_name,
            topics=parts.directory,
            groups=parts.groups,
            offsets=parts.offsets,
            offset_saver=parts.offset_saver,
        ).handlers(),
    }
