"""Group settings as nameservers store them, each with a version; the highest version wins. Pure.

Nameservers do not communicate and have no conditional put. So each value carries its version, a
deletion is also a value, and of equal versions the greater text wins: all readers choose the same.
Values are signed (``store_keys``); ``store_reading`` decides which of them count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from proxy.errors import SettingsError
from proxy.settings.groups import GroupSettings
from proxy.settings.source import Layers, explain

NAMESPACE = "ORDERLANE_GROUPS"
_VERSIONS = 2**53
_MAX_KEY_CHARS = 16
_SIGNATURE_CHARS = 64
#: Longer values are not decoded: settings of a group have a few thousand characters.
MAX_CHARS = 1_048_576


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """One value. ``settings`` excludes the group's name; None: the group was deleted."""

    version: int
    settings: dict[str, Any] | None
    written_ms: int = 0
    by: str = ""
    key: str = ""
    """Name of the key that signed it."""
    signature: str = ""
    """HMAC-SHA256 as hexadecimal digits; empty: not signed, as written by earlier versions."""

    def encode(self) -> str:
        """Return the stored form: one line of JSON, equal for equal content."""
        fields: dict[str, Any] = {
            "version": self.version,
            "settings": self.settings,
            "written_ms": self.written_ms,
            "by": self.by,
        }
        if self.signature:
            fields |= {"key": self.key, "signature": self.signature}
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def decode(cls, text: str) -> StoredGroup:
        """Undo ``encode``. Raises ValueError with one sentence for anything else."""
        try:
            if len(text) > MAX_CHARS:
                raise ValueError(f"it has {len(text)} characters, at most {MAX_CHARS} are allowed")
            fields = orjson.loads(text)
            version, settings = fields["version"], fields["settings"]
            if type(version) is not int or not 1 <= version < _VERSIONS:
                raise ValueError(f"its version is {version!r}")
            if settings is not None and not isinstance(settings, dict):
                raise ValueError("its settings are not an object")
            written_ms = int(fields.get("written_ms", 0))
            by, key, signature = (str(fields.get(name, "")) for name in ("by", "key", "signature"))
            if len(key) > _MAX_KEY_CHARS or len(signature) > _SIGNATURE_CHARS:
                raise ValueError("its signature is too long")
            value = cls(version, settings, written_ms, by, key, signature)
            value.encode()  # not every JSON that can be read can be written
            return value
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            reason = str(error)[:200]
            raise ValueError(f"not group settings in orderlane's stored form: {reason}") from None


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


def rank_of(value: StoredGroup) -> tuple[int, str]:
    """Return the order of two values of one group: the greater one wins."""
    return value.version, value.encode()
