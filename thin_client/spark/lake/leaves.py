"""Parts of columns without parts of their own, in arrays, maps and structs."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

Types = tuple[type[DataType], ...]


def has(kind: DataType, types: Types) -> bool:
    """Return whether a value of *kind* has parts of one of *types*, apart from keys of maps."""
    match kind:
        case ArrayType():
            return has(kind.elementType, types)
        case MapType():
            return has(kind.valueType, types)
        case StructType():
            return any(has(each.dataType, types) for each in kind)
    return isinstance(kind, types)


def any_leaf(
    found: Column, kind: DataType, types: Types, test: Callable[[Column, DataType], Column]
) -> Column:
    """Return whether a part of *found*, of one of *types*, meets *test*, which gets the part and
    its type. *kind* is the type of *found*, or has the same arrays, maps and structs, and at least
    one part of *types*.
    """
    match kind:
        case ArrayType():
            wrong = sf.exists(found, lambda each: any_leaf(each, kind.elementType, types, test))
        case MapType():
            values = sf.map_values(found)
            wrong = sf.exists(values, lambda each: any_leaf(each, kind.valueType, types, test))
        case StructType():
            fields = (each for each in kind if has(each.dataType, types))
            wrong = reduce(
                or_,
                (any_leaf(found[each.name], each.dataType, types, test) for each in fields),
            )
        case _:
            wrong = test(found, kind)
    return sf.coalesce(wrong, sf.lit(False))
