"""The groups of the store, given to the lanes as they change."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from proxy.errors import SettingsError
from proxy.live.group_store import GroupStore
from proxy.live.live_groups import LiveGroups, Source
from proxy.live.stored_group import StoredGroup, group_of
from proxy.settings.groups import GroupSettings

LOOK_S = 2.0

_log = structlog.get_logger("config")


@dataclass(slots=True)
class StoreState:
    """How it went. ``refused``: by group why its newest settings are not served."""

    applied: int = 0
    refusals: int = 0
    refused: dict[str, str] = field(default_factory=dict)


class StoreWatch:
    """Reads the store every two seconds. A group whose settings are wrong stays as it was."""

    def __init__(self, store: GroupStore, live: LiveGroups) -> None:
        self.store = store
        self.state = StoreState()
        self._live = live
        self._looked: dict[str, StoredGroup] = {}  # what was given, or refused, last
        self._good: dict[str, GroupSettings] = {}

    @property
    def served(self) -> list[GroupSettings]:
        """The groups that were given."""
        return list(self._good.values())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as bug:  # without it no group would change any more
                _log.error("store not read; trying again", reason=str(bug), exc_info=bug)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read now, and serve what is there."""
        await self.store.refresh()
        self.serve()

    def serve(self) -> None:
        """Give what is known to the lanes."""
        known = self.store.known
        changed = [name for name, value in known.items() if self._looked.get(name) != value]
        for name in sorted(changed):
            self._looked[name] = known[name]
            self._take(name, known[name])
        # One that was refused for what is served may be served once that has changed.
        for name in [each for each in self.state.refused if each not in changed]:
            if name in known:
                self._take(name, known[name], again=True)

    def _take(self, name: str, value: StoredGroup, *, again: bool = False) -> None:
        groups = dict(self._good)
        try:
            if value.settings is None:
                groups.pop(name, None)
            else:
                groups[name] = group_of(name, value.settings)
            self._live.give(Source.STORE, groups.values())
        except SettingsError as error:
            self.state.refused[name] = str(error)
            if not again:
                self.state.refusals += 1
                _log.error("group of the store refused", group=name, reason=str(error))
            return
        self.state.refused.pop(name, None)
        self.state.applied += 1
        self._good = groups
