"""Group settings as nameservers store them, each with a version; the highest version wins. Pure.

Nameservers do not communicate and have no conditional put. So each value carries its version, a
deletion is also a value, and of equal versions the greater text wins: all readers choose the same.
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
    """One value. ``settings`` excludes the group's name; None: the group was deleted."""

    version: int
    settings: dict[str, Any] | None
    written_ms: int = 0
    by: str = ""

    def encode(self) -> str:
        """Return the stored form: one line of JSON, equal for equal content."""
        fields = {
            "version": self.version,
            "settings": self.settings,
            "written_ms": self.written_ms,
            "by": self.by,
        }
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def decode(cls, text: str) -> StoredGroup:
        """Undo ``encode``. Raises ValueError with one sentence for anything else."""
        try:
            fields = orjson.loads(text)
            version, settings = fields["version"], fields["settings"]
            if type(version) is not int or not 1 <= version < _VERSIONS:
                raise ValueError(f"its version is {version!r}")
            if settings is not None and not isinstance(settings, dict):
                raise ValueError("its settings are not an object")
            written_ms, by = int(fields.get("written_ms", 0)), str(fields.get("by", ""))
            return cls(version, settings, written_ms, by)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"not group settings in orderlane's stored form: {error}") from None


def newest(
    tables: Iterable[Mapping[str, str]], known: Mapping[str, StoredGroup]
) -> tuple[dict[str, StoredGroup], dict[str, str]]:
    """Return, by group, the valid values of the nameservers' *tables* and of *known*, and the
    values that cannot be decoded.

    A missing value was lost: only a stored deletion deletes.
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
    """Yield groups and values that a nameserver with *table* lacks."""
    for group, value in right.items():
        if table.get(group) != value.encode():
            yield group, value.encode()


def group_of(name: str, settings: Mapping[str, Any]) -> GroupSettings:
    """Return the settings of the group *name*. Raises SettingsError with a sentence per problem."""
    content = {**settings, "name": name}
    try:
        return GroupSettings.model_validate(content)
    except ValidationError as error:
        layers = Layers(f"group {name}", content)
        raise SettingsError("\n".join(explain(error, layers, GroupSettings))) from None


def stored_form(group: GroupSettings) -> dict[str, Any]:
    """Return the stored form of *group*: the explicitly set fields as JSON, without the name."""
    said = group.model_dump(mode="json", exclude_unset=True)
    said.pop("name", None)
    return said


def _rank(value: StoredGroup) -> tuple[int, str]:
    return value.version, value.encode()
