"""Applies changes in the store to the lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from proxy.errors import SettingsError
from proxy.live.group_changes import refusals
from proxy.live.group_store import GroupStore
from proxy.live.live_groups import LiveGroups, Source
from proxy.live.stored_group import StoredGroup, group_of
from proxy.settings.groups import GroupSettings

LOOK_S = 2.0

_log = structlog.get_logger("config")


@dataclass(slots=True)
class StoreState:
    """State of the store. ``refused``: by group, why its newest settings are not served."""

    applied: int = 0
    refusals: int = 0
    refused: dict[str, str] = field(default_factory=dict)


class StoreWatch:
    """Reads the store every two seconds. A group with invalid settings keeps its previous ones."""

    def __init__(self, store: GroupStore, live: LiveGroups) -> None:
        self.store = store
        self.state = StoreState()
        self._live = live
        self._looked: dict[str, StoredGroup] = {}  # last applied or refused value
        self._good: dict[str, GroupSettings] = {}
        self._has_served = False  # what a nameserver answered

    @property
    def served(self) -> list[GroupSettings]:
        """Groups applied from the store."""
        return list(self._good.values())

    def unserved(self, group: str) -> str:
        """Return why *group* may be stored although it is not served; "" if it is not stored."""
        if (reason := self.state.refused.get(group)) is not None:
            sentences = "; ".join(reason.splitlines())
            return f"its settings in the nameservers' store are refused: {sentences}"
        if self._has_served:
            return ""
        reasons = "; ".join(self.store.unreachable.values()) or "this takes a moment"
        return f"this proxy has not read the nameservers' store since it started: {reasons}"

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as bug:  # otherwise no group would change any more
                _log.error("cannot read the store; retrying", reason=str(bug), exc_info=bug)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read the store and apply it."""
        await self.store.refresh()
        self.serve()
        self._has_served = self.store.was_read

    def serve(self) -> None:
        """Apply the known groups to the lanes."""
        known = self.store.known
        changed = {name: value for name, value in known.items() if self._looked.get(name) != value}
        self._looked |= changed
        self._take_all(sorted(changed))
        # A group refused because of a served one may be accepted after that has changed.
        waiting = [each for each in self.state.refused if each not in changed and each in known]
        self._take_all(waiting, again=True)

    def _take_all(self, names: Sequence[str], *, again: bool = False) -> None:
        """Apply the values of *names*, as many at once as possible, since each step costs as much
        as there are groups. One that is refused holds up no other.
        """
        if len(names) == 1:
            self._take(names[0], self.store.known[names[0]], again=again)
        elif names and not self._take_at_once(names):
            half = len(names) // 2
            self._take_all(names[:half], again=again)
            self._take_all(names[half:], again=again)

    def _take_at_once(self, names: Sequence[str]) -> bool:
        """Apply the values of *names*; return False if nothing changed, as one of them is refused
        or has to be removed first.
        """
        groups, failed, reason = dict(self._good), frozenset[str](), ""
        try:
            for name in names:
                settings, former = self.store.known[name].settings, groups.pop(name, None)
                if settings is not None:
                    new = groups[name] = group_of(name, settings)
                    if former is not None and any(refusals(former, new)):
                        return False
            self._live.give(Source.STORE, groups.values())
        except SettingsError:
            return False
        except Exception as error:  # of these groups; the others have changed
            failed, reason = self._live.unfinished.intersection(names), str(error)
            if not failed:
                return False
        self._good = groups
        for name in names:
            if name in failed:
                self.state.refused[name] = reason or "an error: see the proxy's log"
            else:
                self.state.refused.pop(name, None)
        self.state.refusals += len(failed)
        self.state.applied += len(set(names) - failed)
        return True

    def _take(self, name: str, value: StoredGroup, *, again: bool = False) -> None:
        groups = dict(self._good)
        try:
            if value.settings is None:
                groups.pop(name, None)
            else:
                new, former = group_of(name, value.settings), groups.pop(name, None)
                if former is not None and any(refusals(former, new)):
                    # Deleted and created again meanwhile: a proxy that saw the deletion accepted
                    # the new one.
                    self._live.give(Source.STORE, groups.values())
                    self._good = dict(groups)
                groups[name] = new
            self._live.give(Source.STORE, groups.values())
        except Exception as error:  # not even a bug may hold up the other groups
            self.state.refused[name] = str(error) or type(error).__name__
            if not again:
                self.state.refusals += 1
                _log.error(
                    "group of the store refused",
                    group=name,
                    reason=self.state.refused[name],
                    exc_info=None if isinstance(error, SettingsError) else error,
                )
            return
        self.state.refused.pop(name, None)
        self.state.applied += 1
        self._good = groups
