"""Which batches of a folder of Parquet files may be merged, and how a merge survives a kill. Pure.

A merge of a day goes through these steps, each of which may be the last one of a driver::

    1  the merged files are written to    .orderlane-compact/<unique>/new
    2  the journal is written             .orderlane-compact/<unique>/journal.json
    3  each batch of the day moves to     .orderlane-compact/<unique>/old
    4  the merged files move to           date=…/batch=<query>-merged-<unique>
    5  their rows are counted; if none is missing, old is deleted, then the rest of <unique>

Before step 2 nothing has changed: the next run deletes what step 1 left. From then on the next run
does the steps that are left. A reader misses the rows of the merged batches between the first move
of step 3 and step 4.

A second run cannot know whether the first one was killed or goes on, so it may delete the files of
step 1, or take batches, while the first one lives. Then a batch is missing in step 3, or rows in
step 5: the batches move back, and that merge has failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

_BATCH = re.compile(r"batch=(?P<query>[0-9a-f-]{36})-(?P<number>\d{9,})\Z")
_MERGED = "merged"


@dataclass(frozen=True, slots=True)
class Merge:
    """The journal of a merge.

    Args:
        day: the folder of the day, as in ``date=2026-01-31``.
        batches: the folders in it that are merged.
        target: the folder in it that replaces them.
        rows: the number of rows of the batches.
    """

    day: str
    batches: tuple[str, ...]
    target: str
    rows: int

    def text(self) -> str:
        """Return the content of the journal."""
        return json.dumps(
            {
                "day": self.day,
                "batches": self.batches,
                "target": self.target,
                "rows": self.rows,
            }
        )

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the merge of a journal. Raises ValueError."""
        try:
            found = json.loads(text)
            return cls(
                str(found["day"]), tuple(found["batches"]), str(found["target"]), int(found["rows"])
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a journal: {error!r}") from None


def merged_name(query: str, unique: str) -> str:
    """Return the folder of merged batches of *query*; no batch has such a name, so that Spark
    replaces none.
    """
    return f"batch={query}-{_MERGED}-{unique}"


def mergeable(folders: Iterable[str], query: str, last: int) -> tuple[str, ...]:
    """Return those of a day's *folders* that no repeated batch can replace: batches up to *last*,
    the last one that Spark has committed, and results of earlier merges.

    Those of other queries stay: whether Spark has committed them is not known.
    """
    prefix = f"batch={query}-{_MERGED}-"
    return tuple(
        sorted(
            folder
            for folder in folders
            if folder.startswith(prefix)
            or (
                (found := _BATCH.match(folder))
                and found["query"] == query
                and int(found["number"]) <= last
            )
        )
    )


def last_committed(names: Iterable[str]) -> int | None:
    """Return the last number among the *names* in the folder ``commits`` of a checkpoint."""
    return max((int(name) for name in names if name.isdigit()), default=None)


def query_of(metadata: str) -> str:
    """Return the query's name from the file ``metadata`` of a checkpoint. Raises ValueError."""
    try:
        return str(json.loads(metadata)["id"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the metadata of a query: {error!r}") from None
