"""An archive whose small files can be merged, whatever its format. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from thin_client.spark.lake.names import is_small, worth_merging


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction.

    Args:
        before: number of small files that were merged.
        after: number of files that replaced them.
        deleted: number of files deleted because no version needs them, of Iceberg that of
            snapshots.
        days: number of days deleted.
    """

    before: int = 0
    after: int = 0
    deleted: int = 0
    days: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        """Return the sums."""
        return Compacted(
            self.before + other.before,
            self.after + other.after,
            self.deleted + other.deleted,
            self.days + other.days,
        )


class Compaction(Protocol):
    """An archive whose small files can be merged."""

    def days(self) -> list[str]:
        """Return the days of the archive, as in ``2026-01-31``, sorted."""

    def drop(self, before: str) -> None:
        """Delete all rows of the days before *before*, a day. Raises OptionError."""

    def merge(self, day: str, target: int) -> Compacted:
        """Replace the small files of *day* by files of about *target* bytes. Raises OptionError."""

    def clean(self, hours: int) -> int:
        """Delete what no version of the last *hours* needs; return the number of files, of Iceberg
        that of snapshots. Raises OptionError.
        """

    def close(self) -> None:
        """Close connections of the driver."""


def small(sizes: Iterable[tuple[str, int]], target: int) -> list[str]:
    """Return the names of files to rewrite among those of a partition, given with their sizes;
    none if they would not become fewer.
    """
    found = [(name, size) for name, size in sizes if is_small(size, target)]
    if not worth_merging((size for _, size in found), target):
        return []
    return [name for name, _ in found]


def small_folders(folders: Mapping[str, Sequence[int]], target: int) -> list[str]:
    """Return the names of *folders* to rewrite, given with the sizes of their files: those whose
    files are small on average; none if the files would not become fewer.
    """
    found = {
        name: sizes
        for name, sizes in folders.items()
        if sizes and is_small(sum(sizes) // len(sizes), target)
    }
    if not worth_merging((size for sizes in found.values() for size in sizes), target):
        return []
    return list(found)
