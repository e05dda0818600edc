"""Tables of a catalog: ``CREATE TABLE ... USING orderlane OPTIONS (...)``. Pure.

Spark passes the options of a table of a Python source when the table is created, and never again.
But the catalog stores the columns, and Spark passes these to readers and to most writers. So a
table's options are in the metadata of its column ``value``. Options of a query replace them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from thin_client.spark.kafka_names import is_kafka, own_names
from thin_client.spark.option_table import READ, STREAM, WRITE, applies, check_known
from thin_client.spark.options import OptionError, ReadOptions, WriteOptions

#: The column whose metadata has the options, and their name there.
HOLDER, OPTIONS = "value", "orderlane.options"
#: The name under which Spark passes the format of a table that is being created, and the prefix of
#: its options, beside other properties.
_PROVIDER, _OPTION = "provider", "option."

_NO_OPTIONS = (
    "there are no options: set them in the query, or create the table by CREATE TABLE name USING"
    " orderlane OPTIONS (…), which saveAsTable and AS SELECT do not do, and then use INSERT or"
    " writeTo(name).append()"
)


def new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created; None if Spark creates none.

    Raises OptionError for options with which it could neither be read nor written.
    """
    texts = {name.lower(): value for name, value in given.items()}
    if _PROVIDER not in texts:
        return None
    options = {
        name.removeprefix(_OPTION): value
        for name, value in texts.items()
        if name.startswith(_OPTION)
    }
    options = own_names(options).texts
    check_known(options)
    options = {name.lower(): value for name, value in options.items()}
    if "group" not in options and "topic" in options:
        WriteOptions.parse(for_operation(options, WRITE), streaming=False)
    else:
        ReadOptions.parse(for_operation(options, READ), streaming=False)
    return options


def stored(fields: Iterable[Any]) -> dict[str, str] | None:
    """Return the options in the columns *fields* of a table; None for columns of something else."""
    for each in fields:
        if each.name == HOLDER and (found := each.metadata.get(OPTIONS)) is not None:
            return dict(found)
    return None


def effective(fields: Iterable[Any], given: Mapping[str, str], where: str) -> Mapping[str, str]:
    """Return the options of an operation: those *given*, and those of the table that apply.

    Raises OptionError if there are none: Spark creates tables with columns, as from a DataFrame or
    a query, without asking the source, and passes it no options of such a table.
    """
    table = stored(fields)
    if table is None:
        if not given:
            raise OptionError(_NO_OPTIONS)
        return given
    query = own_names(given, kafka=is_kafka(table) or is_kafka(given)).texts
    return for_operation(table, where) | {name.lower(): value for name, value in query.items()}


def for_operation(table: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the options of a *table* that apply to an operation.

    Rows go to the topic that the table reads, unless it has the option ``topic`` or reads several.
    """
    found = {name: value for name, value in table.items() if applies(name, where)}
    if where not in (READ, STREAM) and "," not in (read := table.get("subscribe", ",")):
        found.setdefault("topic", read.strip())
    return found
