"""What a broker calls stored, and is not on disk yet: no promise may rest on it."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.client import SendReceipt, SendStatus
from broker_core.errors import RequestTimeout


def check_on_disk(receipts: Iterable[SendReceipt]) -> None:
    """Raises RequestTimeout for a message that a broker's crash may lose: it has to be sent again,
    and may then be there twice.
    """
    for receipt in receipts:
        if receipt.status is SendStatus.FLUSH_DISK_TIMEOUT:
            raise RequestTimeout(f"{receipt.queue}: a message was not on disk in time")
