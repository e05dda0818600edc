"""Bytes that no client would send, on every port."""

from __future__ import annotations

import random
import struct

from tests.attack.attacks import attack
from tests.attack.installation import Installation, rss_bytes

_MEGABYTE = 1 << 20


def streams(seed: int) -> list[bytes]:
    """Return beginnings of a connection: random bytes, and impossible lengths."""
    chooser = random.Random(seed)
    noise = [chooser.randbytes(chooser.randrange(1, 4000)) for _ in range(20)]
    lengths = [struct.pack(">i", length) + b"x" * 64 for length in (-1, -(2**31), 2**31 - 1)]
    return noise + lengths


@attack(
    "a frame longer than the limit, or with a negative length",
    also=(
        "random and mutated bytes on the Thrift port",
        "the same on the ports of broker and nameserver",
    ),
    answer="at most that connection is closed; no traceback, no memory taken",
)
async def bad_bytes(at: Installation) -> str:
    at.start_all()
    before = [rss_bytes(child) for child in at.running]
    closed = 0
    for port in (at.thrift, at.broker, at.nameserver):
        for stream in streams(seed=len(port)):
            reader, writer = await at.open(port)
            writer.write(stream)
            writer.write_eof()
            assert await at.is_hung_up(reader), f"the connection to {port} stays open"
            writer.close()
            closed += 1
    grown = [rss_bytes(child) - was for child, was in zip(at.running, before, strict=True)]
    assert max(grown) < 32 * _MEGABYTE, f"memory grew by {grown} bytes"
    assert all(child.running for child in at.running), at.errors()
    assert not at.has_traceback(), at.errors()
    return f"{closed} connections closed, {max(grown) / _MEGABYTE:.1f} MiB more memory at most"
