"""Schemas of message bodies, as a file of them names them, and their evolution. Pure.

The file is a JSON object with a schema for each topic: columns and types in the form of SQL, or an
example of a body::

    {
      "orders": "amount bigint, customer struct<id: string>, placed_at timestamp",
      "payments": {"example": {"order": 17, "sum": 12.5}}
    }
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thin_client.spark.option_values import OptionError, once
from thin_client.spark.selection import Selection

#: Whether a body has the types of its schema; null without a body or a schema.
FITS = "bodyFits"
#: Delta and Iceberg tables and SQL take these names without quotes.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_EXPECTED = 'expected columns as in "amount bigint, customer string", or {"example": {...}}'


@dataclass(frozen=True, slots=True)
class BodySchema:
    """The schema of the bodies of *topic*: either *columns*, as SQL, or an *example*, as JSON."""

    topic: str
    columns: str | None
    example: str | None


def read_schemas(text: str, source: str) -> tuple[BodySchema, ...]:
    """Parse the file *source* with the content *text*. Raises OptionError."""
    try:
        found = json.loads(text, object_pairs_hook=once)
    except ValueError as error:
        raise OptionError(f"{source} is not JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{source}: expected a JSON object with a schema for each topic")
    return tuple(_schema(topic, given, source) for topic, given in found.items())


def check_topics(topics: Iterable[str], selection: Selection, source: str) -> None:
    """Raise OptionError for one of *topics*, which the file *source* names, that is not in
    *selection*: its columns would stay empty.
    """
    for topic in topics:
        if not selection.wants_topic(topic):
            raise OptionError(
                f"{source} names the topic {topic!r}, which is not read: the archive is of"
                f" {selection}"
            )


def _schema(topic: str, given: Any, source: str) -> BodySchema:
    if isinstance(given, str) and given.strip():
        return BodySchema(topic, given, None)
    if isinstance(given, dict) and set(given) == {"example"}:
        example = given["example"]
        if isinstance(example, dict) and example:
            return BodySchema(topic, None, json.dumps(example))
        raise OptionError(f"{source}, topic {topic}: the example is not an object with fields")
    raise OptionError(f"{source}, topic {topic}: {_EXPECTED}")


def check_names(names: Iterable[str], *, reserved: Collection[str], where: str) -> None:
    """Raise OptionError if a name cannot be that of a column, is *reserved* or occurs twice;
    upper and lower case are the same.
    """
    taken = {name.lower() for name in reserved}
    own: set[str] = set()
    for name in names:
        if not _NAME.match(name):
            raise OptionError(
                f"{where}: {name!r} cannot be a column: expected letters, digits and underscores"
            )
        if name.lower() in taken:
            raise OptionError(f"{where}: the archive has a column {name} of its own")
        if name.lower() in own:
            raise OptionError(f"{where}: there are two columns {name}")
        own.add(name.lower())


def merged(schemas: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """Return the types of all topics' columns, by name. Raises OptionError if two topics differ in
    a type, or in the case of a name.

    Args:
        schemas: topics with the types of their columns, by name.
    """
    found: dict[str, tuple[str, str]] = {}
    written: dict[str, str] = {}
    for topic, columns in schemas:
        for name, kind in columns.items():
            like = written.setdefault(name.lower(), name)
            if like != name:
                raise OptionError(
                    f"column {like} of topic {found[like][0]} and {name} of topic {topic} differ in"
                    " case only, which Spark cannot read in one table: write them alike"
                )
            first, known = found.setdefault(name, (topic, kind))
            if known != kind:
                raise OptionError(
                    f"column {name} is {known} in topic {first}, and {kind} in topic {topic}:"
                    " archive the topics separately, or name one of the columns differently"
                )
    return {name: kind for name, (_, kind) in found.items()}


def new_columns(found: Mapping[str, str], wanted: Mapping[str, str], where: str) -> list[str]:
    """Return the names that the table *where* lacks. Raises OptionError if a type changed, or the
    case of a name: Spark reads no table with both.

    Args:
        found: types of the table's columns, by name.
        wanted: types of the columns to write; the table may have more.
        where: words for the table.
    """
    written = {name.lower(): name for name in found}
    for name, kind in wanted.items():
        like = written.get(name.lower(), name)
        if name not in found and like != name:
            raise OptionError(
                f"{where} has the column {like}, which differs from {name} in case only: write"
                f" {like}"
            )
        if found.get(name, kind) != kind:
            raise OptionError(
                f"{where} has the column {name} as {found[name]}, not as {kind}: keep the type, or"
                " give the column another name"
            )
    return [name for name in wanted if name not in found]
