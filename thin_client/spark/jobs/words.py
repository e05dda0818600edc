"""Texts of errors inside Spark, and defaults of options. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Our error at the end of Spark's message, with or without a Python traceback before it.
_OURS = re.compile(
    r"(?:^|[\s.])(?:OptionError|DataLost|MessagesGone|GarbledRecords|RowRefused|SendFailed|Refused"
    r"|ConnectionLost|ProxyFault|ProtocolError): (.+)$",
    re.MULTILINE,
)


def sentence(error: BaseException) -> str:
    """Return the error's sentence without the Java and Python tracebacks around it."""
    text = str(error)
    found = _OURS.findall(text)
    if found:
        return str(found[-1]).strip()
    return f"Spark failed: {next(iter(text.strip().splitlines()), type(error).__name__)}"


def with_defaults(options: Mapping[str, str], **defaults: str) -> dict[str, str]:
    """Return *options* plus the *defaults* of options that are not set, case-insensitively."""
    given = {name.lower() for name in options}
    more = {name: value for name, value in defaults.items() if name.lower() not in given}
    return {**options, **more}
