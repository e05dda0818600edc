"""Errors of libraries as one line, without the secrets of an address. Pure."""

from __future__ import annotations

import re

#: Where py4j's text names an object of Java, before the error itself.
_OF_PY4J = "An error occurred while calling "
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
#: Secrets in texts, each after a first group that stays: the user of an address, its parameters
#: (``?sig=``, ``;token=``), and the header of a request. A key of a store may contain slashes; a
#: port is no password.
_SECRETS = (
    re.compile(r"(://)(?:[^\s/@]*|[^\s/:@]*:(?!\d+(?:/|$))[^\s'\"]*)(?=@)"),
    re.compile(r"([?&;][\w.%-]+=)[^\s&;,'\")\]}]+"),
    re.compile(r"(\b(?:Bearer|Basic) )[\w.~+/=-]+"),
)


def line_of(error: BaseException) -> str:
    """Return the first line of *error* that says something, or else the name of its class."""
    return first_line(str(error)) or type(error).__name__


def first_line(text: str) -> str:
    """Return the first line of *text* that says something, without colors and secrets."""
    lines = (_COLOR.sub("", line).strip() for line in text.splitlines())
    said = (line for line in lines if line and not line.startswith(_OF_PY4J))
    return without_secrets(next(said, "").removeprefix(": "))


def without_secrets(text: str) -> str:
    """Return *text* with a ``…`` for each secret in an address."""
    for secret in _SECRETS:
        text = secret.sub(r"\1…", text)
    return text
