"""Rejects messages that a broker has stored but not yet on disk: no guarantee may rely on them."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.client import SendReceipt, SendStatus
from broker_core.errors import RequestTimeout


def check_on_disk(receipts: Iterable[SendReceipt]) -> None:
    """Raise RequestTimeout for a message that a crash of the broker may lose.

    It must be sent again, and may then be stored twice.
    """
    for receipt in receipts:
        if receipt.status is SendStatus.FLUSH_DISK_TIMEOUT:
            raise RequestTimeout(f"{receipt.queue}: a message was not on disk in time")
