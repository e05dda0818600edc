"""Which of the values read from the nameservers count. Pure.

Invariants:

1. A value without a valid signature never counts, and neither do its version and its deletion.
2. A value older than the one known never counts again: a replay changes nothing.
3. A version rises by at most ``MAX_STEP`` from the known one, and begins at most at
   ``MAX_FIRST_VERSION``: no value outranks all later changes.
4. A missing value was lost: only a signed deletion deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from proxy.live.store_keys import StoreKeys
from proxy.live.stored_group import StoredGroup, rank_of

#: Changes of one group that a proxy may have missed while it reached no nameserver.
MAX_STEP = 10_000
MAX_FIRST_VERSION = 2**31
#: Refused values that are kept and shown: a stranger could store any number of them.
MAX_REFUSED = 100


@dataclass(slots=True)
class StoreReading:
    """The values of all nameservers, by group."""

    known: dict[str, StoredGroup] = field(default_factory=dict)
    """The valid ones, deletions included."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why a value does not count; at most ``MAX_REFUSED`` of them."""
    unsigned: dict[str, StoredGroup] = field(default_factory=dict)
    """Settings without a signature, also listed in ``refused``."""
    more_refused: int = 0
    """Refused values beyond those."""


def read_values(
    tables: Iterable[Mapping[str, str]], known: Mapping[str, StoredGroup], keys: StoreKeys
) -> StoreReading:
    """Return the newest of *known* and the valid values in *tables*, the nameservers' tables."""
    reading = StoreReading(known=dict(known))
    texts = {name: value.encode() for name, value in known.items()}
    for group, text in (item for table in tables for item in table.items()):
        if texts.get(group) == text:
            continue
        try:
            value = StoredGroup.decode(text)
            if not value.signature:
                _note_unsigned(reading, group, value)
                continue
            keys.check(group, value)
            _check_version(known.get(group), value)
        except ValueError as error:
            _refuse(reading, group, str(error))
            continue
        held = reading.known.get(group)
        if held is None or rank_of(value) > rank_of(held):
            reading.known[group] = value
    return reading


def shown_name(group: str) -> str:
    """Return *group* for logs and problems: a stored name may be anything."""
    return group if group.isprintable() and len(group) <= 255 else repr(group[:80])


def _note_unsigned(reading: StoreReading, group: str, value: StoredGroup) -> None:
    held = reading.known.get(group)
    if held is not None:
        _refuse(
            reading,
            group,
            f"version {value.version} is not signed: version {held.version} stays in use",
        )
    elif value.settings is None:
        return  # a deletion of a group that does not exist: harmless, and frequent after an upgrade
    elif _refuse(
        reading,
        group,
        f"version {value.version} is not signed, so it is not used: if these are your settings,"
        " sign them with orderlane groups sign, otherwise delete the group",
    ):
        reading.unsigned[group] = value


def _refuse(reading: StoreReading, group: str, reason: str) -> bool:
    """Keep *reason* and return whether there was room."""
    if group not in reading.refused and len(reading.refused) >= MAX_REFUSED:
        reading.more_refused += 1
        return False
    reading.refused[group] = reason
    return True


def _check_version(held: StoredGroup | None, value: StoredGroup) -> None:
    most = MAX_FIRST_VERSION if held is None else held.version + MAX_STEP
    if value.version > most:
        raise ValueError(
            f"its version is {value.version}, and at most {most} is expected: a version does not"
            " jump"
        )
