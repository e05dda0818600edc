"""Values of JSON bodies beyond the range of their types.

Spark's JSON reader turns some of them into other values without a word: a whole number for a time
counts seconds, and wraps around beyond 64 bits of microseconds; 128 to 255 become negative as
``tinyint``; numbers with a fraction become infinite; texts and numbers become times beyond the
years 1 to 9999, which other readers of the files cannot show, such as milliseconds that were taken
for seconds. A column with such a value is null, as one that does not fit.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from thin_client.spark.lake.leaves import any_leaf, has

_FRACTIONS = (FloatType, DoubleType)
_TIMES = (DateType, TimestampType, TimestampNTZType)
#: Types whose numbers wrap around, and the types under which they are read again.
_WRAPPING = {TimestampType: StringType(), ByteType: ShortType()}
_WRAPPED = tuple(_WRAPPING)
#: Whole seconds beyond the years 1 to 9999: in all of them a time has at most 12 digits.
_SECONDS = r"^[+-]?[0-9]{13,}$"


def again(text: Column, schema: StructType) -> Column | None:
    """Return the JSON *text* once more, as a struct of the columns of *schema* whose numbers may
    wrap around, with types in which these do not; null if the text has no such number. None if
    there is no such column.
    """
    if not has(schema, _WRAPPED):
        return None
    digits = 3 if has(schema, (ByteType,)) else 13
    return sf.when(text.rlike(f"[0-9]{{{digits}}}"), sf.from_json(text, _wide(schema)))


def beyond(name: str, kind: DataType, parsed: Column, wide: Column) -> Column | None:
    """Return whether the column *name* of the struct *parsed* has a value beyond the range of its
    type *kind*; None if no part of it can have one. *wide*: the same body from ``again``.
    """
    found = []
    if has(kind, _TIMES):
        found.append(any_leaf(parsed[name], kind, _TIMES, _is_no_year))
    if has(kind, _FRACTIONS):
        found.append(any_leaf(parsed[name], kind, _FRACTIONS, _is_infinite))
    if has(kind, _WRAPPED):
        found.append(any_leaf(wide[name], kind, _WRAPPED, _wraps))
    return reduce(or_, found) if found else None


def _is_no_year(time: Column, _kind: DataType) -> Column:
    return ~sf.year(time).between(1, 9999)


def _is_infinite(number: Column, _kind: DataType) -> Column:
    return sf.abs(number) == sf.lit(math.inf)


def _wraps(wide: Column, kind: DataType) -> Column:
    return ~wide.between(-128, 127) if isinstance(kind, ByteType) else wide.rlike(_SECONDS)


def _wide(kind: DataType) -> DataType:
    """Return *kind* with wider types for those that wrap around, and without the fields of structs
    that have none.
    """
    match kind:
        case ArrayType():
            return ArrayType(_wide(kind.elementType))
        case MapType():
            return MapType(kind.keyType, _wide(kind.valueType))
        case StructType():
            kept = (each for each in kind if has(each.dataType, _WRAPPED))
            return StructType([StructField(each.name, _wide(each.dataType)) for each in kept])
    return _WRAPPING[type(kind)]
