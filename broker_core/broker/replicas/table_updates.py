"""A slave's updates of tables in memory from its master's, by name of table."""

from __future__ import annotations

from typing import Any

from broker_core.broker.admin.topic_deletion import TopicDeletion
from broker_core.broker.groups.configs import GroupConfigs
from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.replicas.slave import TableUpdate
from broker_core.broker.table_saver import Saver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import Topics
from broker_core.tasks import in_thread


def table_updates(
    directory: TopicDirectory,
    group_directory: GroupDirectory,
    *,
    deletion: TopicDeletion,
    offsets: CommittedOffsets,
    offset_saver: Saver,
) -> dict[str, TableUpdate]:
    """Return the functions that replace a table in memory and on disk.

    They may raise OSError, ValueError and InvalidCommand.
    """

    async def replace_topics(content: dict[str, Any]) -> None:
        await directory.replace(await in_thread(Topics.from_table, content))
        deletion.catch_up(ahead=True)

    async def replace_groups(content: dict[str, Any]) -> None:
        await group_directory.replace(GroupConfigs.from_table(content))

    async def replace_offsets(content: dict[str, Any]) -> None:
        offsets.replace(await in_thread(CommittedOffsets.from_table, content))
        deletion.catch_up(ahead=True)
        await offset_saver.save()

    return {
        "topics": replace_topics,
        "subscriptionGroup": replace_groups,
        "consumerOffset": replace_offsets,
    }
