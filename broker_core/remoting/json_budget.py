"""Counts the elements of a JSON text before it is parsed. Pure.

A parser creates an object of fifty bytes or more for two bytes such as ``[]``, so a text from
outside is counted first, at the speed of a search for single bytes.
"""

from __future__ import annotations

import re
from itertools import islice

#: Up to the next separator outside strings, or to the end.
_SEPARATOR = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[^",\[{]++)*+(?:[,\[{]|\Z)', re.S)
_SEPARATORS = (b",", b"[", b"{")


def at_most(data: bytes | memoryview) -> int:
    """Return an upper limit for the number of values in *data*: separators in strings count too."""
    content = bytes(data)  # no copy of bytes
    return 1 + sum(content.count(each) for each in _SEPARATORS)


def exceeds(data: bytes, most: int) -> bool:
    """Return whether *data* has more than *most* values, not counting what is inside strings."""
    if at_most(data) <= most:
        return False
    # The end of the text is matched once after the last separator, and once more on its own.
    return sum(1 for _ in islice(_SEPARATOR.finditer(data), most + 2)) >= most + 2
