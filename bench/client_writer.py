"""Batches of the Python client, sent by a process of ``bench.spark_arms``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from thin_client import Outgoing, Producer

KEYS = 4_000
#: Messages in one call.
_BATCH, _TIMEOUT_S = 2_000, 60.0


@dataclass(frozen=True, slots=True)
class Share:
    """The rows *number*, *number* + *processes* and so on below *rows*; each key is in one share if
    the number of keys is a multiple of *processes*.
    """

    number: int
    processes: int
    rows: int
    body_bytes: int


def prepare(share: Share) -> int:
    """Make the rows; return their number."""
    return len(_rows(share))


def send(share: Share, servers: str, topic: str) -> int:
    """Send the rows to *topic*; return their number. Raises SendFailed."""
    rows = _rows(share)
    with Producer(servers, timeout_s=_TIMEOUT_S) as producer:
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            producer.send_batch([Outgoing(topic, body, key=key) for key, body in batch])
    return len(rows)


@cache
def _rows(share: Share) -> Sequence[tuple[str, bytes]]:
    return [
        (f"key-{number % KEYS}", _body(number, share.body_bytes))
        for number in range(share.number, share.rows, share.processes)
    ]


def _body(number: int, size: int) -> bytes:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    return (digest * (size // len(digest) + 1))[:size].encode()
