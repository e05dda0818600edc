"""The parts of a Delta table, from its log."""

from __future__ import annotations

from collections import defaultdict
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from thin_client.spark.lake.parts import Part

_PATH, _PARTITION = "path", "partition."


def parts_of(table: DeltaTable) -> list[Part]:
    """Return a part for each of the partitions that have files, in the order of their values; one
    part without values if there are no partition columns.

    Files are relative to the table, or absolute if the log names them so.
    """
    keys = table.metadata().partition_columns
    added = pa.table(table.get_add_actions(flatten=True))
    columns = [added.column(f"{_PARTITION}{key}").to_pylist() for key in keys]
    files: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, *values in zip(added.column(_PATH).to_pylist(), *columns, strict=True):
        files[tuple(values)].append(unquote(path))  # the log has paths as URLs
    return [
        Part(dict(zip(keys, values, strict=True)), tuple(sorted(paths)))
        for values, paths in sorted(files.items(), key=lambda each: _order(each[0]))
    ]


def _order(values: tuple[object, ...]) -> list[tuple[bool, str]]:
    return [(value is not None, str(value)) for value in values]
