"""The groups of a running proxy: their sources, and the steps when they change.

A source provides all its groups at once. The settings file takes precedence over the store. Groups
that clients create on demand have no source; once configured, the configuration applies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

import structlog

from broker_core.tasks import cancel_and_wait, spawn
from proxy.errors import SettingsError
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.live.group_changes import GroupChanges, changes, refusals
from proxy.settings.groups import GroupSettings

_log = structlog.get_logger("config")


class Source(Enum):
    """Sources of groups, by precedence."""

    FILE = "file"
    STORE = "store"


#: See ``LiveGroups``.
Unservable = Callable[[Source, Iterable[GroupSettings]], Iterable[str]]


class LiveGroups:
    """Keeps *lanes* in line with the sources."""

    def __init__(
        self,
        lanes: Lanes,
        *,
        changed: Callable[[GroupLane], None],
        give_up: Callable[[GroupLane], Awaitable[None]],
        unservable: Unservable = lambda _source, _groups: (),
    ) -> None:
        """Set up without groups.

        Args:
            lanes: The lanes of the proxy.
            changed: Called with each lane whose settings changed.
            give_up: Hands over all queues of a removed lane, which is then dropped.
            unservable: Returns one sentence for each valid setting of groups from a source that
                this process cannot serve.
        """
        self._lanes = lanes
        self._changed = changed
        self._give_up = give_up
        self._unservable = unservable
        self._given: dict[Source, dict[str, GroupSettings]] = {}
        self._served: dict[str, Source | None] = {}  # sources of the lanes created here
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._unfinished: set[str] = set()  # groups that are not changed completely
        self._closed = False

    def __repr__(self) -> str:
        return f"<LiveGroups {sorted(self._served)} leaving={sorted(self._leaving)}>"

    @property
    def groups(self) -> dict[str, GroupSettings]:
        """Configured groups, by name."""
        return {
            name: settings
            for source in reversed(Source)
            for name, settings in self._given.get(source, {}).items()
        }

    def source_of(self, group: str) -> Source | None:
        """Return the source of *group*; None if it is not configured."""
        return next((each for each in Source if group in self._given.get(each, {})), None)

    @property
    def leaving(self) -> list[str]:
        """Removed groups whose queues are being handed over."""
        return sorted(self._leaving)

    @property
    def unfinished(self) -> frozenset[str]:
        """Groups whose change failed half-way; the next ``give`` continues it."""
        return frozenset(self._unfinished)

    def shadowed(self) -> list[str]:
        """Stored groups that the settings file overrides."""
        both = self._given.get(Source.FILE, {}).keys() & self._given.get(Source.STORE, {}).keys()
        return sorted(both)

    def check(self, source: Source, groups: Iterable[GroupSettings]) -> GroupChanges:
        """Return the changes that ``give`` would make. Raises SettingsError, one sentence per
        line.
        """
        groups = tuple(groups)
        before = self.groups
        after = self._merged(source, groups)
        problems = [
            problem
            for name in sorted(before.keys() & after.keys())
            for problem in refusals(before[name], after[name])
        ]
        for each, given in self._with(source, groups).items():
            problems += self._unservable(each, given.values())
        if problems:
            raise SettingsError("\n".join(problems))
        return changes(before, after)

    def give(self, source: Source, groups: Iterable[GroupSettings]) -> GroupChanges:
        """Replace all groups of *source* by *groups*. Hand-overs continue in the background.

        Raises SettingsError like ``check``; nothing changes then. Any other error is of one group,
        whose change the next call continues; the other groups have changed.
        """
        groups = tuple(groups)
        done = self.check(source, groups)
        self._given[source] = {group.name: group for group in groups}
        self._settle()
        if done:
            _log.info(
                "groups changed",
                source=source.value,
                added=list(done.added),
                changed=list(done.changed),
                removed=list(done.removed),
            )
        return done

    async def close(self) -> None:
        """Stop changing groups; the caller hands over all queues."""
        self._closed = True
        await cancel_and_wait(*self._leaving.values())

    def _with(
        self, source: Source, groups: Iterable[GroupSettings]
    ) -> dict[Source, dict[str, GroupSettings]]:
        return {**self._given, source: {group.name: group for group in groups}}

    def _merged(self, source: Source, groups: Iterable[GroupSettings]) -> dict[str, GroupSettings]:
        given = self._with(source, groups)
        return {
            name: settings
            for each in reversed(Source)
            for name, settings in given.get(each, {}).items()
        }

    def _settle(self) -> None:
        """Update the lanes, except for names whose previous lane is still being handed over. Raises
        the first error; the other groups are updated nevertheless.
        """
        if self._closed:
            return
        wanted = self.groups
        for name in sorted(self._served.keys() - wanted.keys()):
            del self._served[name]
            self._retire(name)
        self._unfinished &= wanted.keys()
        failed: Exception | None = None
        for name, settings in wanted.items():
            if name not in self._leaving:
                try:
                    self._settle_one(name, settings)
                except Exception as error:  # one group holds up no other
                    if name not in self._unfinished:
                        _log.error("a group was not changed", group=name, exc_info=error)
                    self._unfinished.add(name)
                    failed = failed or error.with_traceback(None)
        if failed is not None:
            raise failed

    def _settle_one(self, name: str, settings: GroupSettings) -> None:
        lane = self._lanes.find(name)
        if lane is not None and lane.auto_created and any(refusals(lane.settings, settings)):
            self._retire(name)
            return
        source = self.source_of(name)
        again = self._served.get(name, source) is not source or name in self._unfinished
        self._served[name] = source
        if lane is None:
            self._lanes.add(settings)
        elif again or lane.auto_created or lane.settings != settings:
            lane.set_up(settings)
            self._changed(lane)
        self._unfinished.discard(name)

    def _retire(self, name: str) -> None:
        lane = self._lanes.retire(name)
        if lane is not None:
            self._leaving[name] = spawn(self._leave(lane), name=f"give up {name}")

    async def _leave(self, lane: GroupLane) -> None:
        try:
            await self._give_up(lane)
        except Exception as bug:
            _log.error(
                "a removed group was not handed over completely", group=lane.name, exc_info=bug
            )
        # Not if cancelled: on close, the remaining queues are handed over and verdicts still count.
        self._lanes.drop(lane.name)
        del self._leaving[lane.name]
        self._settle()  # a group of the same name may have been added meanwhile
