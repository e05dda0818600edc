"""The configurations of consumer groups of one broker. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from broker_core.errors import InvalidCommand
from broker_core.names import Group, check_name
from broker_core.remoting.group_bodies import GroupConfig, groups_from_fields, groups_to_fields
from broker_core.remoting.json_fields import JsonObject
from broker_core.remoting.route_bodies import DataVersion

MAX_RETRY_QUEUES = 1024


class GroupConfigs:
    """Configurations by group, with a version that increases with each change."""

    def __init__(self) -> None:
        self._configs: dict[Group, GroupConfig] = {}
        self.version = DataVersion()

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(self._configs.values())

    def __len__(self) -> int:
        return len(self._configs)

    def find(self, group: Group) -> GroupConfig | None:
        """Return the configuration, or None if the group has none."""
        return self._configs.get(group)

    def put(self, configs: Iterable[GroupConfig], *, now_ms: int) -> bool:
        """Create or change groups; return False if nothing changes."""
        changed = False
        for config in configs:
            changed = changed or self._configs.get(config.group) != config
            self._configs[config.group] = config
        if changed:
            self._changed(now_ms)
        return changed

    def remove(self, group: Group, *, now_ms: int) -> bool:
        """Delete the configuration; return False if there is none."""
        if self._configs.pop(group, None) is None:
            return False
        self._changed(now_ms)
        return True

    def patch(
        self, groups: Iterable[Group], *, wanted: Sequence[GroupConfig] = (), now_ms: int
    ) -> dict[str, Any]:
        """Return a merge patch that brings a saved table up to date for *groups*, and contains
        *wanted*, which are about to be put.
        """
        found = {name: self._configs.get(name) for name in groups}
        found |= {config.group: config for config in wanted}
        version = DataVersion(now_ms, self.version.counter + 1) if wanted else self.version
        return {
            "subscriptionGroupTable": {
                name: None if config is None else config.to_fields()
                for name, config in found.items()
            },
            "dataVersion": version.to_fields(),
        }

    def replace(self, other: GroupConfigs) -> None:
        """Replace the content by *other*: a slave takes over its master's table."""
        self._configs, self.version = other._configs, other.version

    def to_table(self) -> dict[str, Any]:
        """Return RocketMQ's form of the file, which also answers 201."""
        return groups_to_fields(self, self.version)

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> GroupConfigs:
        """Inverse of ``to_table``; raise InvalidCommand that names the invalid part."""
        read = cls()
        configs, read.version = groups_from_fields(JsonObject(table, "table of groups"))
        read._configs = {config.group: config for config in configs}
        return read

    def _changed(self, now_ms: int) -> None:
        self.version = DataVersion(now_ms, self.version.counter + 1)


def checked(config: GroupConfig) -> GroupConfig:
    """Return *config* if it is valid; raise InvalidCommand that names the invalid field."""
    if config.retry_queue_nums > MAX_RETRY_QUEUES:
        raise InvalidCommand(
            f"retryQueueNums of group {config.group} is {config.retry_queue_nums}: expected 0 to"
            f" {MAX_RETRY_QUEUES}"
        )
    if not -1 <= config.retry_max_times <= 0x7FFFFFFF:
        raise InvalidCommand(
            f"retryMaxTimes of group {config.group} is {config.retry_max_times}: expected -1 or"
            " more"
        )
    return config


def default_config(name: str) -> GroupConfig:
    """Return the default configuration; raise ValueError if *name* is invalid."""
    return GroupConfig(group=Group(check_name("group", name)))
