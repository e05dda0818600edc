"""Broken clients by name: what is wrong with each, and which case has to see it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar
from unittest.mock import patch

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

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the client of this process until the end."""
        with ExitStack() as patched:
            for each in _stand_ins(self.arm) if isinstance(self.arm, type) else [self.arm()]:
                patched.enter_context(each)
            yield


def _stand_ins(broken: type) -> Iterator[Patch]:
    """Let each module of the client use *broken* wherever it names the class that it extends."""
    base = broken.__base__
    assert base is not None
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGES) and vars(module).get(base.__name__) is base:
            yield patch.object(module, base.__name__, broken)


BROKEN: dict[str, Broken] = {}


def breaks(case: str, what: str) -> Callable[[Arm], Arm]:
    """Register a broken part, or the function that makes a patch, under its name."""

    def register(arm: Arm) -> Arm:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", arm.__name__)
        BROKEN[words.replace("_", "-").lower()] = Broken(case, what, arm)
        return arm

    return register
