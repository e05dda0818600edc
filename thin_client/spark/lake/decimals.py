"""Decimals of JSON bodies whose exponents are huge.

Spark's JSON reader writes a decimal out to the scale of its column, whatever its exponent: a short
body such as ``{"amount": 1e600000000}`` would take all memory of a task, in each of its repeats. A
body that may have such a number is parsed with text in place of decimals.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from thin_client.spark.lake.leaves import any_leaf

#: A digit of an exponent: Spark leaves commas out, and Java takes digits of all scripts.
_DIGIT = r"(?:[\p{Nd},]|\\u[0-9A-Fa-f]{4})"
_EXPONENT = rf"[eE][+-]?{_DIGIT}{{4,}}+(?![A-Za-z_])"
#: Texts that may have a number with an exponent of four digits or more. Digits that follow a letter
#: are in no number, as in most hexadecimal ids.
_SUSPECT = (
    r"\\u00(?:3[0-9]|2[B-Eb-e]|[46]5)"  # an escaped character of a number
    rf"|\\u[0-9A-Fa-f]{{4}}[\p{{Nd}}.,]*+{_EXPONENT}"
    rf"|(?<![A-Za-z_][\p{{Nd}}.,]{{0,40}}){_EXPONENT}"
)
#: Numbers that are cheap to convert, and exact: Spark makes text of a number with a point by way of
#: a double, which keeps 15 digits.
_EXACT = (
    r"^\s*[+-]?(?:[0-9]{1,38}|(?=(?:[0-9]\.?|\.[0-9]){1,15}(?:[eE]|\s*$))"
    r"[0-9]*\.?[0-9]*(?:[eE][+-]?0*[0-9]{1,3})?)\s*$"
)


def parsed(text: Column, schema: StructType, *, misfit: str) -> Column:
    """Return the JSON *text* as a struct of *schema*; a field that does not fit is null, and then
    the column *misfit* of the schema has the text.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": misfit}
    plain = sf.from_json(text, schema, options)
    texts = _as_text(schema)
    if texts == schema:
        return plain
    found = sf.from_json(text, texts, options)
    fields = {each.name: _numbers(found[each.name], each.dataType) for each in schema}
    fields[misfit] = sf.when(_misfits(found, schema), text).otherwise(found[misfit])
    whole = sf.struct(*(column.alias(name) for name, column in fields.items()))
    return sf.when(text.rlike(_SUSPECT), sf.when(found.isNotNull(), whole)).otherwise(plain)


def _as_text(kind: DataType) -> DataType:
    """Return *kind* with text in place of each decimal."""
    match kind:
        case DecimalType():
            return StringType()
        case ArrayType():
            return ArrayType(_as_text(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(kind.keyType, _as_text(kind.valueType), kind.valueContainsNull)
        case StructType():
            return StructType(
                [StructField(each.name, _as_text(each.dataType), each.nullable) for each in kind]
            )
    return kind


def _numbers(found: Column, kind: DataType) -> Column:
    """Return *found*, of the type ``_as_text(kind)``, as *kind*: other text is null."""
    if _as_text(kind) == kind:
        return found
    match kind:
        case ArrayType():
            return sf.transform(found, lambda each: _numbers(each, kind.elementType))
        case MapType():
            return sf.transform_values(found, lambda _, each: _numbers(each, kind.valueType))
        case StructType():
            fields = [_numbers(found[each.name], each.dataType).alias(each.name) for each in kind]
            return sf.when(found.isNotNull(), sf.struct(*fields))
    return sf.when(found.rlike(_EXACT), found.try_cast(kind))


def _misfits(found: Column, schema: StructType) -> Column:
    """Return whether *found* has text for which ``_numbers`` returns null."""
    return any_leaf(
        found,
        schema,
        (DecimalType,),
        lambda text, kind: text.isNotNull() & _numbers(text, kind).isNull(),
    )
