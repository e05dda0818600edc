"""The groups of a broker: their configurations, saved when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import orjson

from broker_core.broker.groups.configs import GroupConfigs, default_config
from broker_core.broker.table_saver import uncancelled
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.group_bodies import GroupConfig
from broker_core.store.tables import JsonTable


class GroupDirectory:
    """Finds configurations of groups, and creates defaults for groups without one."""

    def __init__(self, configs: GroupConfigs, table: JsonTable, *, auto_create: bool) -> None:
        """Manage *configs*; *auto_create* false: groups without a configuration are refused."""
        self.configs = configs
        self._table = table
        self._auto_create = auto_create
        self._saved = configs.version
        self._turn = asyncio.Lock()

    def config(self, group: Group) -> GroupConfig:
        """Return the configuration of *group*; a new default is on disk after the next ``save``.

        A default lost in a crash would be created again. Raises BrokerError if the group must be
        configured first, or its name is invalid.
        """
        found = self.configs.find(group)
        if found is not None:
            return found
        if not self._auto_create:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {group[:200]!r} does not exist on this broker, create it first",
            )
        try:
            made = default_config(group)
        except ValueError as error:
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, str(error)) from error
        self.configs.put([made], now_ms=wall_ms())
        return made

    def consuming(self, group: Group) -> GroupConfig:
        """Return the configuration as ``config`` does; also raise BrokerError if it disables
        consuming.
        """
        config = self.config(group)
        if not config.consume_enable:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {group}: its consumeEnable is false",
            )
        return config

    async def define(self, configs: Iterable[GroupConfig]) -> None:
        """Create or change groups durably. Raise OSError without a change."""
        wanted = tuple(configs)
        await self._change(lambda table, now_ms: table.put(wanted, now_ms=now_ms))

    async def delete(self, group: Group) -> None:
        """Delete a group's configuration durably. Raise OSError as ``define``.

        With automatic creation, the group gets the default at its next request.
        """
        await self._change(lambda table, now_ms: table.remove(group, now_ms=now_ms))

    async def replace(self, configs: GroupConfigs) -> None:
        """Replace the groups by the master's, durably. Raise OSError."""
        async with self._turn:
            await asyncio.to_thread(self._table.save_bytes, orjson.dumps(configs.to_table()))
            self.configs.replace(configs)
            self._saved = configs.version

    async def save(self) -> None:
        """Save defaults created by ``config``. Raise OSError."""
        if self.configs.version != self._saved:
            await self._change(lambda table, now_ms: True)

    async def _change(self, change: Callable[[GroupConfigs, int], bool]) -> None:
        await uncancelled(self._save(change), name="save groups")

    async def _save(self, change: Callable[[GroupConfigs, int], bool]) -> None:
        async with self._turn:
            now_ms = wall_ms()
            changed = self.configs.copy()
            if not change(changed, now_ms) and self.configs.version == self._saved:
                return
            await asyncio.to_thread(self._table.save_bytes, orjson.dumps(changed.to_table()))
            before = changed.version
            change(self.configs, now_ms)
            # Defaults created meanwhile count as changes: the next save writes them.
            self._saved = before if self.configs.version == before else self._saved
