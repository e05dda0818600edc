"""The groups of a broker: their configurations, saved when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

import orjson

from broker_core.broker.groups.configs import GroupConfigs, default_config
from broker_core.broker.limits import NO_LIMIT, Limit
from broker_core.broker.table_saver import uncancelled
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.group_bodies import GroupConfig
from broker_core.store.journaled_table import JournaledTable
from broker_core.tasks import in_thread

#: Interval at which groups that are not in use may make room: each search scans all groups.
_SWEEP_EVERY_NS = 10_000_000_000


class GroupDirectory:
    """Finds configurations of groups, and creates defaults for groups without one."""

    def __init__(
        self,
        configs: GroupConfigs,
        table: JournaledTable,
        *,
        auto_create: bool,
        limit: Limit = NO_LIMIT,
        in_use: Callable[[], set[Group]] = set,
        forgotten: Callable[[Collection[Group]], None] = lambda groups: None,
    ) -> None:
        """Manage *configs*.

        *auto_create* false: groups without a configuration are refused. *limit*: on the number of
        groups. *in_use* returns the groups with members, offsets or locks: of the others, those
        created automatically make room for new ones; *forgotten* is called with those.
        """
        self.configs = configs
        self._table = table
        self._auto_create = auto_create
        self._limit = limit
        self._in_use = in_use
        self._forgotten = forgotten
        self._swept_ns: int | None = None
        self._unsaved: set[Group] = set()  # changes that the table lacks
        self._saving: set[Group] = set()  # those that are being written
        self._turn = asyncio.Lock()

    def config(self, group: Group) -> GroupConfig:
        """Return the configuration of *group*; a new default is on disk after the next ``save``.

        A default lost in a crash would be created again. Raises BrokerError if the group must be
        configured first, if its name is invalid, or beyond the limit.
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
        self._check_room([made], now_ns=now_ns())
        self.configs.put([made], now_ms=wall_ms())
        self._unsaved.add(group)
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
        """Create or change groups durably. Raise OSError without a change, and BrokerError beyond
        the limit.
        """
        await uncancelled(self._define(tuple(configs)), name="save groups")

    async def _define(self, wanted: Sequence[GroupConfig]) -> None:
        async with self._turn:
            changed = [each for each in wanted if self.configs.find(each.group) != each]
            self._check_room(changed, now_ns=now_ns())
            now_ms = wall_ms()
            await self._write(changed, now_ms=now_ms)
            self.configs.put(changed, now_ms=now_ms)
            self._unsaved -= {config.group for config in wanted}

    async def delete(self, group: Group) -> None:
        """Delete a group's configuration durably. Raise OSError: then it may return at a restart.

        With automatic creation, the group gets the default at its next request.
        """
        await uncancelled(self._delete(group), name="save groups")

    async def _delete(self, group: Group) -> None:
        async with self._turn:
            if self.configs.remove(group, now_ms=wall_ms()):
                self._unsaved.add(group)
            await self._write()

    async def replace(self, configs: GroupConfigs) -> None:
        """Replace the groups by the master's, durably. Raise OSError."""
        async with self._turn:
            await in_thread(self._table.save_bytes, orjson.dumps(configs.to_table()))
            self.configs.replace(configs)
            self._unsaved.clear()

    async def save(self) -> None:
        """Save defaults created by ``config``, and deletions. Raise OSError."""
        if self._unsaved or self._saving:
            await uncancelled(self._save(), name="save groups")

    async def _save(self) -> None:
        async with self._turn:
            await self._write()

    async def fold(self) -> None:
        """Write the whole table as one file. Raise OSError."""
        async with self._turn:
            await in_thread(self._table.fold)

    async def _write(self, wanted: Sequence[GroupConfig] = (), *, now_ms: int = 0) -> None:
        """Append *wanted* and the changes that the table lacks."""
        if not self._unsaved and not wanted:
            return
        patch = self.configs.patch(self._unsaved, wanted=wanted, now_ms=now_ms)
        # A group that changes meanwhile is unsaved again.
        self._saving, self._unsaved = self._unsaved, set()
        try:
            await in_thread(self._table.append, patch)
        except BaseException:
            self._unsaved |= self._saving
            raise
        finally:
            self._saving = set()

    def _check_room(self, wanted: Sequence[GroupConfig], *, now_ns: int) -> None:
        """Raise BrokerError if the new ones of *wanted* are too many, after making room."""
        new = {config.group for config in wanted if self.configs.find(config.group) is None}
        if not new or self._limit.allows(len(self.configs) + len(new)):
            return
        if self._swept_ns is None or now_ns - self._swept_ns >= _SWEEP_EVERY_NS:
            self._swept_ns = now_ns
            self._forget_unused()
        name = min(new)
        self._limit.check(
            len(self.configs) + len(new),
            refused=f"group {name[:200]!r} is not created",
            held=f"this broker has {len(self.configs)} groups",
        )

    def _forget_unused(self) -> None:
        """Forget groups that are not in use and would be created again as they are."""
        used = self._in_use() if self._auto_create else None
        if used is None:
            return
        gone = {
            config.group
            for config in self.configs
            if config.group not in used and config == GroupConfig(group=config.group)
        }
        for group in gone:
            self.configs.remove(group, now_ms=wall_ms())
        self._unsaved |= gone
        self._forgotten(gone)
