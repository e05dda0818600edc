"""What went wrong inside Spark, as a sentence; and options by name. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: What Spark's own message ends with, after a Python traceback or not: our error and its sentence.
_OURS = re.compile(
    r"(?:^|[\s.])(?:OptionError|DataLost|MessagesGone|GarbledRecords|RowRefused|SendFailed|Refused"
    r"|ConnectionLost|ProxyFault|ProtocolError): (.+)$",
    re.MULTILINE,
)


def sentence(error: BaseException) -> str:
    """What is wrong, without the traces of two languages around it."""
    text = str(error)
    found = _OURS.findall(text)
    if found:
        return str(found[-1]).strip()
    return f"Spark says: {next(iter(text.strip().splitlines()), type(error).__name__)}"


def with_defaults(options: Mapping[str, str], **defaults: str) -> dict[str, str]:
    """*options* and those of *defaults* that they do not name, whatever the case of letters."""
    given = {name.lower() for name in options}
    more = {name: value for name, value in defaults.items() if name.lower() not in given}
    return {**options, **more}
