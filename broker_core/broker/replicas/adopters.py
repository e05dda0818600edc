"""A slave's updates of tables in memory from its master's, by name of table."""

from __future__ import annotations

from typing import Any

from broker_core.broker.admin.topic_deletion import TopicDeletion
from broker_core.broker.groups.configs import GroupConfigs
from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.replicas.slave import Adopter
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import Topics


def adopters(
    directory: TopicDirectory,
    group_directory: GroupDirectory,
    *,
    deletion: TopicDeletion,
    offsets: CommittedOffsets,
    offset_saver: TableSaver,
) -> dict[str, Adopter]:
    """Return the functions that replace a table in memory and on disk.

    They may raise OSError, ValueError and InvalidCommand.
    """

    async def adopt_topics(content: dict[str, Any]) -> None:
        await directory.adopt(Topics.from_table(content))
        deletion.catch_up(ahead=True)

    async def adopt_groups(content: dict[str, Any]) -> None:
        await group_directory.adopt(GroupConfigs.from_table(content))

    async def adopt_offsets(content: dict[str, Any]) -> None:
        offsets.adopt(CommittedOffsets.from_table(content))
        deletion.catch_up(ahead=True)
        await offset_saver.save()

    return {
        "topics": adopt_topics,
        "subscriptionGroup": adopt_groups,
        "consumerOffset": adopt_offsets,
    }
