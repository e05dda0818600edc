"""What administrators ask a broker, put together: the processors that serve their codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker_core.broker.group_directory import GroupDirectory
from broker_core.broker.groups import Groups
from broker_core.broker.offsets import CommittedOffsets
from broker_core.broker.processors.admin import AdminProcessor
from broker_core.broker.processors.connections import ConnectionProcessor
from broker_core.broker.processors.groups import GroupProcessor
from broker_core.broker.processors.progress import ProgressProcessor
from broker_core.broker.processors.resetting import ResetProcessor
from broker_core.broker.processors.runtime import RuntimeProcessor
from broker_core.broker.producers import Producers
from broker_core.broker.progress import Progress
from broker_core.broker.settings import BrokerSettings
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topic_directory import TopicDirectory
from broker_core.broker.traffic import Traffic
from broker_core.clock import wall_ms
from broker_core.remoting_channel import Handler, RemotingChannel
from broker_core.store.reader import StoreReader


def administration(
    settings: BrokerSettings,
    *,
    reader: StoreReader,
    topics: TopicDirectory,
    groups: Groups[RemotingChannel],
    group_directory: GroupDirectory,
    producers: Producers[RemotingChannel],
    offsets: CommittedOffsets,
    offset_saver: TableSaver,
    traffic: Traffic,
    address: Callable[[], str],
    delete_expired: Callable[[], Awaitable[None]],
) -> dict[int, Handler]:
    """Return the handlers by code; the broker counts as started now."""
    progress = Progress(
        broker_name=settings.broker_name,
        reader=reader,
        topics=topics.topics,
        groups=groups,
        offsets=offsets,
        traffic=traffic,
    )
    return {
        **AdminProcessor(topics).handlers(),
        **ConnectionProcessor(groups, producers).handlers(),
        **GroupProcessor(
            group_directory, offsets=offsets, offset_saver=offset_saver, traffic=traffic
        ).handlers(),
        **ProgressProcessor(
            progress,
            group_directory=group_directory,
            offset_saver=offset_saver,
            address=address,
        ).handlers(),
        **ResetProcessor(
            reader,
            broker_name=settings.broker_name,
            topics=topics,
            groups=groups,
            offsets=offsets,
            offset_saver=offset_saver,
        ).handlers(),
        **RuntimeProcessor(
            settings,
            reader=reader,
            traffic=traffic,
            boot_ms=wall_ms(),
            address=address,
            delete_expired=delete_expired,
        ).handlers(),
    }
