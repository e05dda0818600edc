"""Subclasses with a bug, in the place of the classes that they extend."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch


@contextmanager
def stand_in(broken: type, *packages: str) -> Iterator[None]:
    """Let the modules of *packages* use *broken* wherever they name the class that it extends.

    Until the end of the context. Raises LookupError if none of them names it.
    """
    base = broken.__base__
    assert base is not None
    with ExitStack() as patched:
        places = [
            module
            for name, module in list(sys.modules.items())
            if name.startswith(packages) and vars(module).get(base.__name__) is base
        ]
        if not places:
            raise LookupError(f"no module of {', '.join(packages)} uses {base.__name__}")
        for module in places:
            patched.enter_context(patch.object(module, base.__name__, broken))
        yield
