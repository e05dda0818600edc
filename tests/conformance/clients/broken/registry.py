"""Broken clients by name: what is wrong with each, and which case has to see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Broken:
    """One way to be wrong."""

    #: The case that has to see it.
    case: str
    what: str
    apply: Callable[[], None]


BROKEN: dict[str, Broken] = {}


def breaks(case: str, what: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a patch under its name."""

    def register(apply: Callable[[], None]) -> Callable[[], None]:
        BROKEN[apply.__name__.replace("_", "-")] = Broken(case, what, apply)
        return apply

    return register
