"""Definition of a bug that the explorer has to find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FeatureBug:
    """A bug that breaks one of ``breaks`` (ids of invariants, or ``error``) where *features*
    meet. Worlds have all features in ``always``.
    """

    what: str
    features: str
    breaks: frozenset[str]
    bug: Callable[[], AbstractContextManager[Any]]
    always: tuple[str, ...] = ()
