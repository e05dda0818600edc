"""The difference between current and new groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.settings.groups import GroupSettings
from proxy.settings.proxy_settings import Settings


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """Names of added, changed and removed groups, each sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def changes(
    before: Mapping[str, GroupSettings], after: Mapping[str, GroupSettings]
) -> GroupChanges:
    """Return the changes from *before* to *after*, both by name."""
    both = before.keys() & after.keys()
    return GroupChanges(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(name for name in both if before[name] != after[name])),
        removed=tuple(sorted(before.keys() - after.keys())),
    )


def refusals(before: GroupSettings, after: GroupSettings) -> Iterable[str]:
    """Yield one sentence for each change from *before* to *after* that a served group does not
    allow.
    """
    old, new = str(before.mode), str(after.mode)
    if old != new:
        yield (
            f"group {after.name}: its mode cannot change from {old} to {new} while"
            " it is served: give the group another name, or remove it first"
        )


def restart_needed(running: Settings, file: Settings) -> list[str]:
    """Return the names of changed settings outside the groups, which need a restart."""
    return sorted(_differing("", running.model_dump(), file.model_dump()))


def _differing(path: str, before: Any, after: Any) -> Iterable[str]:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield path
        return
    for name in before.keys() | after.keys():
        place = f"{path}.{name}" if path else name
        if place != "groups":
            yield from _differing(place, before.get(name), after.get(name))
