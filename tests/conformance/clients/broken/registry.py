"""Broken clients by name: what is wrong with each, and which case has to see it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from tests.support.class_replacement import replaced_class

#: Something is replaced while it is entered.
Patch = AbstractContextManager[object]

Arm = TypeVar("Arm", bound=type | Callable[[], Patch])

#: Where the names of the client's classes are looked up.
_PACKAGES = ("thin_client", "testkit.thin_clients")


@dataclass(frozen=True, slots=True)
class Broken:
    """One way to be wrong."""

    #: The case that has to see it.
    case: str
    what: str
    arm: type | Callable[[], Patch]
    """A class that stands in for its base class, or a function that returns a patch."""

    def applied(self) -> Patch:
        """Break the client of this process until the end."""
        return replaced_class(self.arm, *_PACKAGES) if isinstance(self.arm, type) else self.arm()


BROKEN: dict[str, Broken] = {}


def breaks(case: str, what: str) -> Callable[[Arm], Arm]:
    """Register a broken part, or the function that returns a patch, under its name."""

    def register(arm: Arm) -> Arm:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", arm.__name__)
        BROKEN[words.replace("_", "-").lower()] = Broken(case, what, arm)
        return arm

    return register
