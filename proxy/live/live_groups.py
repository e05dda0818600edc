"""The groups of a proxy while it runs: from where they come, and what is done when they change.

A source gives all its groups at once. The settings file comes before the store: a group of both is
as the file has it. Groups that are made on the fly, because clients ask for them, are nobody's; one
that comes to be configured is as it is configured.
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
    """Where groups come from; the first one counts."""

    FILE = "file"
    STORE = "store"


class LiveGroups:
    """Keeps *lanes* as the sources say."""

    def __init__(
        self,
        lanes: Lanes,
        *,
        changed: Callable[[GroupLane], None],
        give_up: Callable[[GroupLane], Awaitable[None]],
        unservable: Callable[[Iterable[GroupSettings]], Iterable[str]] = lambda _groups: (),
    ) -> None:
        """*changed* is told of a lane with other settings; *give_up* hands all over that a lane
        has, after which it is dropped. *unservable* says, a sentence each, what this process
        cannot do for groups though their settings are right.
        """
        self._lanes = lanes
        self._changed = changed
        self._give_up = give_up
        self._unservable = unservable
        self._given: dict[Source, dict[str, GroupSettings]] = {}
        self._served: set[str] = set()  # lanes that were made here
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<LiveGroups {sorted(self._served)} leaving={sorted(self._leaving)}>"

    @property
    def groups(self) -> dict[str, GroupSettings]:
        """All that should be served, by name."""
        return {
            name: settings
            for source in reversed(Source)
            for name, settings in self._given.get(source, {}).items()
        }

    def source_of(self, group: str) -> Source | None:
        """Where *group* comes from; None if nobody configured it."""
        return next((each for each in Source if group in self._given.get(each, {})), None)

    @property
    def leaving(self) -> list[str]:
        """Removed groups whose queues are being handed over."""
        return sorted(self._leaving)

    def shadowed(self) -> list[str]:
        """Groups of the store that the settings file has, too."""
        both = self._given.get(Source.FILE, {}).keys() & self._given.get(Source.STORE, {}).keys()
        return sorted(both)

    def check(self, source: Source, groups: Iterable[GroupSettings]) -> GroupChanges:
        """What ``give`` would change. Raises SettingsError, a sentence a line, if it refuses."""
        before = self.groups
        after = self._merged(source, groups)
        problems = [
            problem
            for name in sorted(before.keys() & after.keys())
            for problem in refusals(before[name], after[name])
        ]
        problems += self._unservable(after.values())
        if problems:
            raise SettingsError("\n".join(problems))
        return changes(before, after)

    def give(self, source: Source, groups: Iterable[GroupSettings]) -> GroupChanges:
        """From now on *groups* are all that *source* has. What is handed over goes on meanwhile.

        Raises SettingsError as ``check``; nothing changes then.
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
        """Change nothing any more; whoever closes hands everything over."""
        self._closed = True
        await cancel_and_wait(*self._leaving.values())

    def _merged(self, source: Source, groups: Iterable[GroupSettings]) -> dict[str, GroupSettings]:
        given = {**self._given, source: {group.name: group for group in groups}}
        return {
            name: settings
            for each in reversed(Source)
            for name, settings in given.get(each, {}).items()
        }

    def _settle(self) -> None:
        """Make the lanes what they should be, as far as none of that name is being given up."""
        if self._closed:
            return
        wanted = self.groups
        for name in sorted(self._served - wanted.keys()):
            self._served.discard(name)
            self._retire(name)
        for name, settings in wanted.items():
            if name in self._leaving:
                continue
            lane = self._lanes.find(name)
            if lane is not None and lane.auto_created and any(refusals(lane.settings, settings)):
                self._retire(name)
                continue
            self._served.add(name)
            if lane is None:
                self._lanes.add(settings)
            elif lane.settings != settings:
                lane.set_up(settings)
                self._changed(lane)

    def _retire(self, name: str) -> None:
        lane = self._lanes.retire(name)
        if lane is not None:
            self._leaving[name] = spawn(self._leave(lane), name=f"give up {name}")

    async def _leave(self, lane: GroupLane) -> None:
        try:
            await self._give_up(lane)
        except Exception as bug:
            _log.error("group not given up as it should be", group=lane.name, exc_info=bug)
        # Not if it is cancelled: whoever closes hands over what is left, and verdicts count.
        self._lanes.drop(lane.name)
        del self._leaving[lane.name]
        self._settle()  # one of the same name may have come meanwhile
