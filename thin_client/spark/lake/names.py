"""Names and decisions of a table's micro-batches. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar
from urllib.parse import unquote

FORMATS = ("parquet", "delta", "iceberg")
#: Partition columns of a table: the UTC day on which a broker stored the message, and its topic.
DATE, TOPIC = "date", "topic"
#: Columns under which Spark's tasks divide rows into folders.
FOLDERS = ("archived_date", "archived_topic")
#: The folder of a micro-batch in an archive of Parquet files, and Iceberg's partition of a day.
BATCH, TIMESTAMP_DAY = "batch", "timestamp_day"
#: Folder with the columns of an archive of Parquet folders.
RECORD = "_columns"
#: Names of columns that archives have in some format, beside those of the source.
OWN_COLUMNS = frozenset({DATE, BATCH, TIMESTAMP_DAY, *FOLDERS})
#: A topic may contain these two characters, which paths encode; a point is in no topic.
_ENCODED = {"%": ".25", "|": ".7C"}
#: Prefix of the table property with the last batch of a query.
_PROPERTY = "orderlane.archive."
_Item = TypeVar("_Item")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://[^/]*)?")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a folder.

    Args:
        path: relative to the folder, with ``/`` between names.
        size: in bytes.
        modified_ms: time of its last change, in milliseconds since 1970.
    """

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A day, as in ``2026-01-31``, and a topic."""

    date: str
    topic: str

    @classmethod
    def of(cls, path: str) -> Self:
        """Return the partition of a file at *path*, written under FOLDERS. Raises ValueError."""
        found = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
        if missing := [name for name in FOLDERS if name not in found]:
            raise ValueError(f"{path}: no folder {missing[0]}")
        return cls(unquote(found[FOLDERS[0]]), _decoded(found[FOLDERS[1]]))


def local_path(path: str) -> str | None:
    """Return a Spark *path* of the local file system without ``file:``; None for another's.

    Unlike in a URL, ``#``, ``?`` and ``%`` belong to names.
    """
    found = _SCHEME.match(path)
    if found is None:
        return path
    return path[found.end() :] if found["scheme"].lower() == "file" else None


def folder_of(topic: str) -> str:
    """Return *topic* without characters that paths encode: each format encodes them in its own
    way.
    """
    for character, text in _ENCODED.items():
        topic = topic.replace(character, text)
    return topic


def encodings() -> Mapping[str, str]:
    """Return the replacements of ``folder_of``, in their order."""
    return _ENCODED


def _decoded(folder: str) -> str:
    for character, text in _ENCODED.items():
        folder = folder.replace(text, character)
    return folder


def exposes(folder: str, path: str) -> bool:
    """Return whether *path* is in *folder* under a name without a leading ``_`` or ``.``: readers
    take its files for rows, and a vacuum deletes them. Both are absolute.
    """
    whole, root = path.rstrip("/"), folder.rstrip("/")
    below = whole.removeprefix(f"{root}/")
    return whole == root or (below != whole and not below.startswith(("_", ".")))


def attempt_name(query: str, number: int, unique: str) -> str:
    """Return the folder for the files of one attempt at a batch.

    *unique* differs for each attempt: an attempt that goes on after its driver was taken for dead
    cannot touch the files of the one that was committed.
    """
    return f"batch-{query}-{number:09d}-{unique}"


def property_of(query: str) -> str:
    """Return the table property that holds the number of the last batch of *query*."""
    return f"{_PROPERTY}{query}"


def is_recorded(last: int | str | None, number: int) -> bool:
    """Return whether a table whose *last* batch of a query is known contains batch *number*.

    Spark runs the batches of a query in order, so a table with a later batch contains it too.
    """
    return last is not None and int(last) >= number


def files_for(size: int, target: int) -> int:
    """Return the number of files for *size* bytes if each has about *target*."""
    return max(1, round(size / target))


def in_pairs(items: Sequence[_Item], joined: Callable[[_Item, _Item], _Item]) -> _Item:
    """Return the non-empty *items*, *joined* pair by pair in their order: a plan of thousands of
    partitions becomes as deep as their logarithm, and none of its parts is copied for each other.
    """
    rest = list(items)
    while len(rest) > 1:
        pairs = zip(rest[::2], rest[1::2], strict=False)
        rest = [joined(one, other) for one, other in pairs] + rest[len(rest) // 2 * 2 :]
    return rest[0]


def worth_merging(sizes: Iterable[int], target: int) -> bool:
    """Return whether files of these *sizes* become fewer when merged to about *target* bytes."""
    all_sizes = list(sizes)
    return len(all_sizes) > files_for(sum(all_sizes), target)


def is_small(size: int, target: int) -> bool:
    """Return whether a file is rewritten by a compaction: below three quarters of *target*."""
    return 4 * size < 3 * target
