"""What a child process does with the connections that it inherited by ``os.fork``.

Both processes would read one stream of answers. Whatever holds a socket registers itself; in the
child its ``forked`` method is called before any other code runs.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Something that a fork copies and that must not be used as it is."""

    def forked(self) -> None:
        """Let go of what belongs to the parent process, without telling anybody."""


_registered: weakref.WeakSet[Inherited] = weakref.WeakSet()


def register(each: Inherited) -> None:
    """Have *each* told in a child process, as long as somebody else holds it."""
    _registered.add(each)


def _in_child() -> None:
    for each in list(_registered):
        each.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_child)
