"""The words of a filter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

KEYWORDS = frozenset(
    "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split()
)

# The longest word counts, so a float precedes an integer, and `>=` precedes `>`.
_WORD = re.compile(
    r"""
      (?P<blank>   [ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r)
                 | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/ )
    | (?P<decimal> (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<integer> 0 | [1-9][0-9]*[lL]? )
    | (?P<text>    '(?:''|[^'])*' )
    | (?P<name>    [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<sign>    <> | <= | >= | [<>=(),+-] )
    """,
    re.VERBOSE,
)


class BadFilter(ValueError):
    """Invalid filter; the message is one sentence with the position, counted from 1."""


class Token(NamedTuple):
    """``kind`` is decimal, integer, text, name, a keyword, a sign, or ``end``."""

    kind: str
    text: str  # as written; for a text without its quotes
    at: int  # position of its first character, from 1

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text[:40])


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the words of *text*, the last one being its end. Raise BadFilter for invalid ones."""
    position = 0
    while position < len(text):
        found = _WORD.match(text, position)
        if found is None:
            what = "a quote that is never closed" if text[position] == "'" else "no word"
            raise BadFilter(f"character {position + 1}: {what}, {text[position : position + 20]!r}")
        kind, word = str(found.lastgroup), found.group()
        if kind == "name" and word.upper() in KEYWORDS:
            kind = word.upper()
        elif kind == "sign":
            kind = word
        elif kind == "text":
            word = word[1:-1].replace("''", "'")
        if kind != "blank":
            yield Token(kind, word, position + 1)
        position = found.end()
    yield Token("end", "", len(text) + 1)
