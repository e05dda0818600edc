"""Changes encoded properties of a message without decoding them: all others stay unchanged."""

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
    """Return the encoded properties *raw* without the names *without*, and with *more*.

    *more* replaces properties of the same names. Raises LocalProtocolError as
    ``encode_properties``.
    """
    added = more or {}
    gone = {*without, *(name.encode() for name in added)}
    kept = [pair for pair in raw.split(_END) if pair.strip() and pair.partition(_IS)[0] not in gone]
    return b"".join(pair + _END for pair in kept) + encode_properties(added)


def storable_properties(raw: bytes) -> bytes:
    """Return encoded properties of a message in the log in a form that can be stored again.

    Old logs may have longer runs of zero bytes than are allowed now: these are shortened.
    """
    return _MORE_ZEROS.sub(_MOST_ZEROS, raw) if _MOST_ZEROS in raw else raw
