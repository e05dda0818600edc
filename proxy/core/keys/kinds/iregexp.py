"""Regular expressions of JSON paths (RFC 9485), in time proportional to text and pattern. Pure.

Engines that backtrack take exponential time for patterns such as ``(a*)*b``, with a text from any
producer. This one follows all alternatives at once (Thompson's construction), and each followed
alternative is a step of the search (``path_search``).

``^`` and ``$`` are anchors, as in the compliance tests of RFC 9535; ``$`` also matches before a
newline that ends the text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from iregexp_check import check

from proxy.core.keys.work import TooMuchWork, Work

#: Instructions of the longest pattern, with its repetitions written out.
_MAX_PROGRAM = 5_000
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}

_IsOne = Callable[[str], bool]


class _One(NamedTuple):
    """Match one character."""

    matches: _IsOne


class _Split(NamedTuple):
    """Continue at both places, relative to this one."""

    first: int
    second: int


class _At(NamedTuple):
    """Match the begin or the end of the text."""

    end: bool


_Program = list[_One | _Split | _At]


def matches(text: str, pattern: str, *, whole: bool, work: Work) -> bool:
    """Return whether *pattern* matches the *whole* text, or a part of it; False if it is invalid.

    Raises TooMuchWork.
    """
    work.take(len(pattern))
    if (program := _compiled(pattern)) is None:
        return False
    end = len(program)
    threads = _followed(program, [0], text, 0, work)
    if not whole and end in threads:
        return True
    for position, char in enumerate(text, 1):
        work.take(1 + len(threads))
        following = []
        for place in threads:
            if place != end and isinstance(one := program[place], _One) and one.matches(char):
                following.append(place + 1)
        if not whole:
            following.append(0)
        elif not following:
            return False
        threads = _followed(program, following, text, position, work)
        if not whole and end in threads:
            return True
    return end in threads


def _followed(
    program: _Program, places: list[int], text: str, position: int, work: Work
) -> set[int]:
    """Return the places that are reached from *places* without another character."""
    reached: set[int] = set()
    while places:
        place = places.pop()
        if place in reached:
            continue
        work.take(1)
        reached.add(place)
        if place == len(program):
            continue
        step = program[place]
        if isinstance(step, _Split):
            places += (place + step.first, place + step.second)
        elif isinstance(step, _At) and _is_at(step, text, position):
            places.append(place + 1)
    return reached


def _is_at(anchor: _At, text: str, position: int) -> bool:
    if not anchor.end:
        return position == 0
    return position == len(text) or text[position:] == "\n"


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> _Program | None:
    """Return the program of *pattern*; None if it is invalid. Raise TooMuchWork if it is too
    long.
    """
    if not check(pattern):
        return None
    parser = _Parser(pattern)
    return parser.alternatives()


class _Parser:
    """Translates a valid pattern. Each method consumes what it returns the program of."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def alternatives(self) -> _Program:
        """Return the program of branches separated by ``|``."""
        program = self._branch()
        while self._took("|"):
            other = self._branch()
            jump = _Split(len(other) + 1, len(other) + 1)
            program = _short([_Split(1, len(program) + 2), *program, jump, *other])
        return program

    def _branch(self) -> _Program:
        program: _Program = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            program = _short(program + self._repeated(self._atom()))
        return program

    def _repeated(self, atom: _Program) -> _Program:
        size = len(atom)
        if self._took("*"):
            return [_Split(1, size + 2), *atom, _Split(-size - 1, 1)]
        if self._took("+"):
            return [*atom, _Split(-size, 1)]
        if self._took("?"):
            return [_Split(1, size + 1), *atom]
        if not self._took("{"):
            return atom
        least, comma, most = self._until("}").partition(",")
        _refuse_long(int(most or least) * (size + 1))
        program = atom * int(least)
        if comma and not most:
            return [*program, _Split(1, size + 2), *atom, _Split(-size - 1, 1)]
        for left in range(int(most or least) - int(least), 0, -1):
            program += [_Split(1, left * (size + 1)), *atom]
        return program

    def _atom(self) -> _Program:
        char = self._next()
        if char == "(":
            program = self.alternatives()
            self._next()  # ")"
            return program
        if char in "^$":
            return [_At(end=char == "$")]
        if char == ".":
            return [_One(lambda each: each not in "\r\n")]
        if char == "[":
            return [_One(self._class())]
        return [_One(self._single(char))]

    def _single(self, char: str) -> _IsOne:
        if char != "\\":
            return char.__eq__
        char = self._next()
        if char in "pP":
            return self._category(wanted=char == "p")
        return _ESCAPED.get(char, char).__eq__

    def _category(self, *, wanted: bool) -> _IsOne:
        self._next()  # "{"
        name = self._until("}")
        return lambda each: unicodedata.category(each).startswith(name) is wanted

    def _class(self) -> _IsOne:
        """Return the test of a class, whose ``[`` is consumed."""
        wanted = not self._took("^")
        members = list(self._members())
        return lambda each: any(test(each) for test in members) is wanted

    def _members(self) -> Iterator[_IsOne]:
        first = True
        while first or self._pattern[self._at] != "]":
            first = False
            char = self._next()
            if char == "\\" and self._pattern[self._at] in "pP":
                yield self._single(char)
                continue
            low = self._literal(char)
            if self._pattern[self._at] == "-" and self._pattern[self._at + 1] != "]":
                self._next()
                yield _between(low, self._literal(self._next()))
            else:
                yield low.__eq__
        self._next()  # "]"

    def _literal(self, char: str) -> str:
        if char != "\\":
            return char
        char = self._next()
        return _ESCAPED.get(char, char)

    def _next(self) -> str:
        self._at += 1
        return self._pattern[self._at - 1]

    def _took(self, char: str) -> bool:
        found = self._pattern.startswith(char, self._at)
        self._at += found
        return found

    def _until(self, char: str) -> str:
        end = self._pattern.index(char, self._at)
        text, self._at = self._pattern[self._at : end], end + 1
        return text


def _between(low: str, high: str) -> _IsOne:
    return lambda each: low <= each <= high


def _short(program: _Program) -> _Program:
    _refuse_long(len(program))
    return program


def _refuse_long(instructions: int) -> None:
    if instructions > _MAX_PROGRAM:
        raise TooMuchWork(f"a pattern takes more than {_MAX_PROGRAM:,} instructions")
