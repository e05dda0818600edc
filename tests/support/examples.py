"""How many examples a property test draws.

``make test`` draws the same few each time, so that a failure is due to the change under test.
``make test-properties`` draws all of them, and new ones each time.
"""

from __future__ import annotations

import os

#: Whether new examples are drawn.
EXPLORES = os.environ.get("ORDERLANE_EXPLORE") == "1"

_SHARE = 0.25


def examples(count: int) -> int:
    """Return *count*, or a share of it where the examples are the same each time."""
    return count if EXPLORES else max(1, int(count * _SHARE))
