"""Properties of a message changed without being decoded: what else they hold stays as it came."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from broker_core.remoting.message import MAX_ZEROS_IN_PROPERTIES, encode_properties

_END, _IS = b"\x02", b"\x01"
_MOST_ZEROS = bytes(MAX_ZEROS_IN_PROPERTIES)
_MORE_ZEROS = re.compile(rb"\0{%d,}" % (MAX_ZEROS_IN_PROPERTIES + 1))


def changed_properties(
    raw: bytes, *, without: Collection[bytes] = (), more: Mapping[str, str] | None = None
) -> bytes:
    """Return encoded properties *raw* without the names *without*, and with *more*, which replace.

    Raises LocalProtocolError as ``encode_properties``.
    """
    added = more or {}
    gone = {*without, *(name.encode() for name in added)}
    kept = [pair for pair in raw.split(_END) if pair.strip() and pair.partition(_IS)[0] not in gone]
    return b"".join(pair + _END for pair in kept) + encode_properties(added)


def storable_properties(raw: bytes) -> bytes:
    """Return encoded properties *raw* of a message in the log as they can be stored once more.

    More zero bytes in a row than a log takes have not always been refused: that many are left.
    """
    return _MORE_ZEROS.sub(_MOST_ZEROS, raw) if _MOST_ZEROS in raw else raw
