"""Subclasses with a bug that replace the classes they extend."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch


@contextmanager
def replaced_class(broken: type, *packages: str) -> Iterator[None]:
    """Replace, in the modules of *packages*, the class that *broken* extends by *broken*.

    Lasts until the end of the context. Raises LookupError if no module uses the class.
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
