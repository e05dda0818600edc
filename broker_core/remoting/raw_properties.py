"""Properties of a message changed without being decoded: what else they hold stays as it came."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker_core.remoting.message import encode_properties

_END, _IS = b"\x02", b"\x01"


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
