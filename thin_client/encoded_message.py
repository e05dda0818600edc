"""A message as brokers receive it in a batch, for the proxy's method ``sendEncoded``. Pure.

The layout is that of ``EncodedBatch`` in producer_proxy.thrift. This duplicates the broker client's
code, which a thin client may not import; a test compares both.
"""

from __future__ import annotations

import struct

from thrift_idl import producer

#: Before the body: the size of the message, magic number, checksum, flags, and the body's size.
HEAD = struct.Struct(">iIiii")
#: Between body and properties: the size of the properties.
BETWEEN = struct.Struct(">h")
#: Bytes of a message besides its body and properties.
BESIDE_BYTES = HEAD.size + BETWEEN.size
_KEYS, _TAGS = "KEYS", "TAGS"
_MAX_PROPERTIES_BYTES = 32_767


def entry_of(body: bytes, properties: bytes) -> bytes:
    """Return the message with *properties*, which are encoded."""
    size, length = len(body), len(properties)
    head = HEAD.pack(BESIDE_BYTES + size + length, 0, 0, 0, size)
    return b"".join((head, body, BETWEEN.pack(length), properties))


def encoded(message: producer.Message) -> bytes | None:
    """Return *message* as the broker receives it after ``sendSync``; None if it cannot be encoded,
    or the proxy would refuse it, which it explains best itself.
    """
    body, own = message.body, message.properties or {}
    if not body or _KEYS in own or _TAGS in own:
        return None
    named = dict(own)
    if message.key:
        named[_KEYS] = message.key
    if message.tags:
        named[_TAGS] = message.tags
    if not all(named) or not all(named.values()):
        return None
    text = "".join([f"{name}\x01{value}\x02" for name, value in named.items()])
    if text.count("\x01") != len(named) or text.count("\x02") != len(named):
        return None  # a separator in a name or value
    properties = text.encode()
    if len(properties) > _MAX_PROPERTIES_BYTES:
        return None
    return entry_of(body, properties)
