"""Periodic and repeated work of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from broker_core.errors import StoreError, TlsError

AGAIN_S = 2.0
_log = structlog.get_logger("broker")


async def repeated(every_s: float, action: Callable[[], Awaitable[None]], name: str) -> None:
    """Run *action* every *every_s* seconds until cancelled; log failures."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await action()
        except Exception as error:
            _log.error(
                "housekeeping failed, trying again",
                what=name,
                reason=str(error),
                exc_info=None if isinstance(error, OSError) else error,
            )


async def retried(action: Callable[[], Awaitable[None]], *, name: str) -> None:
    """Run *action*, again every 2 s while store, certificates or system fail."""
    while True:
        try:
            await action()
        except (StoreError, TlsError, OSError) as error:
            _log.error("failed, will be tried again", what=name, reason=str(error))
            await asyncio.sleep(AGAIN_S)
        else:
            return
