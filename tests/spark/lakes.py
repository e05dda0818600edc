"""Archives in each format, read without the code under test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMATS = ("parquet", "delta", "iceberg")
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Lake:
    """An archive in *format*, with all its files in *folder*."""

    format: str
    folder: Path

    @property
    def path(self) -> str:
        """The archive's path: of Iceberg the table's name."""
        return "lake.orders" if self.format == "iceberg" else str(self.folder / "archive")

    @property
    def root(self) -> Path:
        """The folder of the archive's files."""
        iceberg = self.folder / "warehouse" / "lake" / "orders"
        return iceberg if self.format == "iceberg" else self.folder / "archive"

    @property
    def catalog(self) -> dict[str, str]:
        """Options of the catalog."""
        if self.format != "iceberg":
            return {}
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of jobs for this archive."""
        return {"format": self.format, "catalog": self.catalog}

    @property
    def flags(self) -> list[str]:
        """The same as options of verbs."""
        pairs = [word for pair in self.catalog.items() for word in ("--catalog", "=".join(pair))]
        return ["--format", self.format, *pairs]

    def rows(self, spark: Any) -> list[dict[str, Any]]:
        """Return all messages, as a reader of the format finds them; none without an archive."""
        if self.format == "delta":
            from deltalake import DeltaTable

            if not DeltaTable.is_deltatable(self.path):
                return []
            return list(DeltaTable(self.path).to_pyarrow_table().to_pylist())
        if self.format == "iceberg":
            with self.table() as table:
                return [] if table is None else list(table.scan().to_arrow().to_pylist())
        if not any(self.root.glob("date=*")):
            return []
        found = spark.read.option("mergeSchema", "true").parquet(self.path)
        return [row.asDict() for row in found.collect()]

    def places(self, spark: Any) -> list[Place]:
        """Return the queue and offset of each message, sorted."""
        return sorted((row["qid"], row["offset"]) for row in self.rows(spark))

    def files(self) -> list[Path]:
        """Return all Parquet files, those of no version of the table too."""
        return sorted(self.root.rglob("*.parquet"))

    @contextmanager
    def table(self) -> Iterator[Any]:
        """Yield the Iceberg table; None if there is none."""
        from pyiceberg.catalog import load_catalog

        catalog: Any = load_catalog(None, **self.catalog)
        try:
            yield catalog.load_table(self.path) if catalog.table_exists(self.path) else None
        finally:
            catalog.close()


def expected(*ends: int) -> list[Place]:
    """Return the places of all messages below the *ends* of the queues."""
    return [(f"broker-a_{n}", offset) for n, end in enumerate(ends) for offset in range(end)]
