"""Settings of groups as nameservers keep them: a version with each, the highest counts. Pure.

Nameservers do not know each other, and know no condition on a put. So every value says its version,
a deletion is a value too, and of two of the same version the one whose text is greater counts: all
who read them choose the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from proxy.errors import SettingsError
from proxy.settings.groups import GroupSettings
from proxy.settings.source import Layers, explain

NAMESPACE = "ORDERLANE_GROUPS"
_VERSIONS = 2**53


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """One value. ``settings`` are without the group's name; None: the group was deleted."""

    version: int
    settings: dict[str, Any] | None
    written_ms: int = 0
    by: str = ""

    def encode(self) -> str:
        """As nameservers keep it: JSON in one line, the same for the same content."""
        fields = {
            "version": self.version,
            "settings": self.settings,
            "written_ms": self.written_ms,
            "by": self.by,
        }
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def decode(cls, text: str) -> StoredGroup:
        """Undo ``encode``. Raises ValueError, in one sentence, for anything else."""
        try:
            fields = orjson.loads(text)
            version, settings = fields["version"], fields["settings"]
            if type(version) is not int or not 1 <= version < _VERSIONS:
                raise ValueError(f"its version is {version!r}")
            if settings is not None and not isinstance(settings, dict):
                raise ValueError("its settings are no object")
            written_ms, by = int(fields.get("written_ms", 0)), str(fields.get("by", ""))
            return cls(version, settings, written_ms, by)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"no settings of a group as orderlane stores them: {error}") from None


def newest(
    tables: Iterable[Mapping[str, str]], known: Mapping[str, StoredGroup]
) -> tuple[dict[str, StoredGroup], dict[str, str]]:
    """What counts, by group, of what the nameservers have and what was *known* before; and what
    nobody can read, by group. A value that is missing was lost: only a value deletes.
    """
    found, unreadable = dict(known), {}
    for group, text in (item for table in tables for item in table.items()):
        try:
            value = StoredGroup.decode(text)
        except ValueError as error:
            unreadable[group] = str(error)
            continue
        held = found.get(group)
        if held is None or _rank(value) > _rank(held):
            found[group] = value
    return found, unreadable


def stale(table: Mapping[str, str], right: Mapping[str, StoredGroup]) -> Iterator[tuple[str, str]]:
    """Groups and values that a nameserver with *table* should have and has not."""
    for group, value in right.items():
        if table.get(group) != value.encode():
            yield group, value.encode()


def group_of(name: str, settings: Mapping[str, Any]) -> GroupSettings:
    """The settings of the group *name*. Raises SettingsError with a sentence for each problem."""
    content = {**settings, "name": name}
    try:
        return GroupSettings.model_validate(content)
    except ValidationError as error:
        layers = Layers(f"group {name}", content)
        raise SettingsError("\n".join(explain(error, layers, GroupSettings))) from None


def stored_form(group: GroupSettings) -> dict[str, Any]:
    """What of *group* is stored: all that was said, as JSON, without its name."""
    said = group.model_dump(mode="json", exclude_unset=True)
    said.pop("name", None)
    return said


def _rank(value: StoredGroup) -> tuple[int, str]:
    return value.version, value.encode()
