"""The tables that a master sends to its slaves: files as of their last save."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broker_core.store.journaled_table import JournaledTable, versions_of

#: Tables that belong to one replica. A promoted slave finds delayed messages in its log.
_OWN = frozenset({"orderlyLock", "replication", "election", "epochs", "delayOffset"})
#: A slave takes these before data that the master stored after the change: it must not acknowledge
#: a message of a topic that it does not know, nor the record that follows a change, nor what a new
#: owner stores after it has committed where its group begins.
AT_ONCE = ("topics", "subscriptionGroup", "consumerOffset")
_LOOK_EVERY_NS = 500_000_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def is_shipped(name: str) -> bool:
    """Return whether a table of that name goes from master to slave."""
    return name not in _OWN and _NAME.fullmatch(name) is not None


class ShippedTables:
    """All tables saved in *folder*, except those of one replica.

    A version identifies a save of a table; versions are only compared for equality.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions: dict[str, str] = {}
        self._looked_ns: int | None = None

    def versions(self, *, now_ns: int) -> dict[str, str]:
        """Return versions by name; those of ``AT_ONCE`` are current, others are up to half a second
        old.
        """
        if self._looked_ns is None or now_ns - self._looked_ns >= _LOOK_EVERY_NS:
            self._looked_ns = now_ns
            names = sorted(path.stem for path in self._folder.glob("*.json"))
            found = {name: self._version(name) for name in names if is_shipped(name)}
        else:
            found = {**self._versions, **{name: self._version(name) for name in AT_ONCE}}
        self._versions = {name: version for name, version in found.items() if version}
        return self._versions

    def read(self, names: Iterable[str]) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return versions and contents. Blocks; raises StoreError if one cannot be read."""
        tables = {}
        for name in names:
            # The version first: after a save in between the table counts as older than it is.
            if name in self._versions and (version := self._version(name)):
                tables[name] = (version, JournaledTable(self._folder / f"{name}.json").load())
        return tables

    def _version(self, name: str) -> str:
        return versions_of(self._folder / f"{name}.json")


def changed(known: dict[str, str], versions: dict[str, str]) -> list[str]:
    """Return names of tables whose version at the master differs from *known*.

    Masters of earlier versions also name tables that belong to one replica.
    """
    return [
        name
        for name, version in versions.items()
        if known.get(name) != version and name not in _OWN
    ]
