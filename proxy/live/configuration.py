"""The sources of a running proxy's groups: settings file, store and reloads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any

from broker_core.tasks import cancel_and_wait, spawn
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.live.file_watch import FileWatch
from proxy.live.group_desk import GroupDesk
from proxy.live.group_store import GroupStore
from proxy.live.live_groups import LiveGroups, Source, Unservable
from proxy.live.settings_file import SettingsFile
from proxy.live.store_reading import shown_name
from proxy.live.store_watch import StoreWatch
from proxy.settings.groups import GroupSettings
from proxy.upstream.audit import Audit

#: Sentences about invalid values in the store; the others are counted.
_SHOWN_PROBLEMS = 20


class Configuration:
    """The group settings of one process. *file*, if given, is watched for changes."""

    def __init__(
        self,
        lanes: Lanes,
        *,
        file: SettingsFile | None,
        store: GroupStore | None,
        audit: Audit,
        changed: Callable[[GroupLane], None],
        give_up: Callable[[GroupLane], Awaitable[None]],
        unservable: Unservable,
    ) -> None:
        self.live = LiveGroups(lanes, changed=changed, give_up=give_up, unservable=unservable)
        self._lanes = lanes
        self._file = None if file is None else FileWatch(file, self.live)
        self._store = None if store is None else StoreWatch(store, self.live)
        self.desk = GroupDesk(lanes, self.live, audit, self._store)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, groups: tuple[GroupSettings, ...]) -> None:
        """Serve *groups* and start watching for changes."""
        self.live.give(Source.FILE, groups)
        if self._file is not None:
            self._tasks.append(spawn(self._file.run(), name="watch the settings file"))
        if self._store is not None:
            self._tasks.append(spawn(self._store.run(), name="watch the store of groups"))

    async def close(self) -> None:
        """Stop watching; nothing changes afterwards."""
        await cancel_and_wait(*self._tasks)
        await self.live.close()

    def reload(self) -> None:
        """Read the settings file now."""
        if self._file is not None:
            self._file.reload()

    @property
    def file_digest(self) -> str:
        """Digest of the settings file's content whose groups are served; "" without a file."""
        return "" if self._file is None else self._file.state.digest

    def unserved(self, group: str) -> str:
        """Return why settings of *group*, which is not served, may exist; "" if there are none."""
        return "" if self._store is None else self._store.unserved(group)

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        """Metrics of each source."""
        found: dict[str, dict[str, float]] = {}
        if self._file is not None:
            state = self._file.state
            found[Source.FILE.value] = {
                "config_applied": state.applied,
                "config_refused": state.refusals,
                "config_bad": bool(state.refused),
            }
        if self._store is not None:
            told = self._store.state
            found[Source.STORE.value] = {
                "config_applied": told.applied,
                "config_refused": told.refusals + self._store.store.refusals,
                "config_bad": bool(told.refused or self._store.store.unreadable),
            }
        return found

    def view(self) -> dict[str, Any]:
        """Return the served and the refused settings with their sources and reasons, for JSON."""
        state = None if self._file is None else self._file.state
        return {
            "file": None
            if state is None
            else {
                "path": state.path,
                "loaded_ms": state.loaded_ms,
                "missing": state.missing,
                "refused": state.refused or None,
                "restart_needed": state.restart_needed,
            },
            "store": None if self._store is None else self._store_view(self._store),
            "groups": [
                {"group": lane.name, "source": self._source(lane.name)}
                for lane in sorted(self._lanes, key=lambda each: each.name)
                if lane.name not in self.live.leaving
            ],
            "leaving": self.live.leaving,
            "problems": self.problems(),
        }

    def problems(self) -> list[str]:
        """Return one sentence for each source or group whose newest settings are not in use."""
        found = []
        state = None if self._file is None else self._file.state
        if state is not None and state.missing:
            found.append(f"{state.path} was deleted: the groups stay unchanged; restore the file")
        if state is not None and state.refused:
            found.append(
                f"the settings file was refused, its previous groups are served: {state.refused}"
            )
        if state is not None and state.restart_needed:
            names = ", ".join(state.restart_needed)
            found.append(f"{state.path}: {names} changed: restart the proxy with it")
        if self._store is not None:
            found += self._store_problems(self._store)
        return found

    def _store_problems(self, watch: StoreWatch) -> list[str]:
        store = watch.store
        shown = dict(islice(store.unreadable.items(), _SHOWN_PROBLEMS))
        more = len(store.unreadable) - len(shown) + store.more_unreadable
        return [
            *(f"the store was refused: {reason}" for reason in watch.state.refused.values()),
            *(f"group {shown_name(name)} in the store: {why}" for name, why in shown.items()),
            *([f"{more} further values in the store are invalid"] if more else []),
            *(f"the store is not read at {why}" for why in store.unreachable.values()),
            *(
                f"group {name} is in the settings file and in the store: the file's counts"
                for name in self.live.shadowed()
            ),
        ]

    def _store_view(self, watch: StoreWatch) -> dict[str, Any]:
        known = watch.store.known.items()
        return {
            "versions": {name: each.version for name, each in known if each.settings is not None},
            "unreachable": sorted(watch.store.unreachable),
            "unsigned": sorted(watch.store.unsigned),
            "old_keys": watch.store.old_keys,
        }

    def _source(self, group: str) -> str:
        source = self.live.source_of(group)
        return "clients" if source is None else source.value
