"""Texts of errors inside Spark, and defaults of options. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from thin_client.spark.error_lines import line_of

#: Our error at the end of Spark's message, with or without a Python traceback before it.
_OURS = re.compile(
    r"(?:^|[\s.])(?:OptionError|DataLost|MessagesGone|GarbledRecords|RowRefused|SendFailed|Refused"
    r"|ConnectionLost|ProxyFault|ProtocolError): (.+?)(?: SQLSTATE: \w{5})*$",
    re.MULTILINE,
)

#: Names of the libraries with which a job reaches stores and catalogs, by the packages of their
#: exceptions.
_LIBRARIES = {
    "py4j": "Spark",
    "_internal": "deltalake",
    "pyiceberg": "pyiceberg",
    "requests": "pyiceberg",
    "pydantic_core": "pyiceberg",
    "sqlalchemy": "pyiceberg",
    "botocore": "pyiceberg",
}


def sentence(error: BaseException) -> str:
    """Return the error's sentence without the Java and Python tracebacks around it."""
    text = str(error)
    found = _OURS.findall(text)
    if found:
        return str(found[-1]).strip()
    return f"Spark failed: {line_of(error)}"


def foreign_sentence(error: Exception) -> str | None:
    """Return the sentence for an error of a store, a catalog or Java, whose libraries have classes
    of their own; None for another error.
    """
    library = _LIBRARIES.get(type(error).__module__.partition(".")[0])
    if library is None and (isinstance(error, BrokenPipeError) or not isinstance(error, OSError)):
        return None
    if library == "Spark":
        return sentence(error)
    return line_of(error) if library is None else f"{library} failed: {line_of(error)}"


def with_defaults(options: Mapping[str, str], **defaults: str) -> dict[str, str]:
    """Return *options* plus the *defaults* of options that are not set, case-insensitively."""
    given = {name.lower() for name in options}
    more = {name: value for name, value in defaults.items() if name.lower() not in given}
    return {**options, **more}
