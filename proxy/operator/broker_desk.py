"""The brokers known to the nameservers, with the figures that they report of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from broker_core.remoting.route_bodies import MASTER_ID, BrokerData
from proxy.upstream.broker_questions import BrokerQuestions
from proxy.upstream.context import UpstreamContext

#: Brokers of one answer: far more than a cluster has.
MOST_BROKERS = 500


class BrokerDesk:
    """Shows brokers, one object per process."""

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context

    async def rows(self) -> dict[str, Any]:
        """Return all brokers by name, each replica in a row of its own. Figures are those of
        masters; None: not reported. Raises RemotingError.
        """
        table = await self._context.client.clusters()
        ask = BrokerQuestions()
        names = sorted(table.brokers)[:MOST_BROKERS]
        rows = await asyncio.gather(*(self._of(ask, table.brokers[name]) for name in names))
        return {
            "brokers": [row for each in rows for row in each],
            "unanswered": ask.unanswered,
            "complete": len(names) == len(table.brokers),
        }

    async def _of(self, ask: BrokerQuestions, data: BrokerData) -> list[dict[str, Any]]:
        client, name = self._context.client, data.broker
        figures: Mapping[str, str] = {}
        if MASTER_ID in data.addresses:
            figures = await ask.ask(name, partial(client.runtime, name)) or {}
        return [
            {
                "broker": name,
                "cluster": data.cluster,
                "id": number,
                "address": address,
                "role": "master" if number == MASTER_ID else "slave",
                **_figures(figures if number == MASTER_ID else {}),
            }
            for number, address in sorted(data.addresses.items())
        ]


def _figures(table: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of a runtime table; None for those that are absent."""
    begin, end = (_integer(table.get(f"commitLog{which}Offset")) for which in ("Min", "Max"))
    ahead_ms = _integer(table.get("retentionClockAheadMillis"))
    return {
        "version": table.get("brokerVersionDesc"),
        "boot_ms": _integer(table.get("bootTimestamp")),
        "disk_used": _share(table.get("commitLogDiskRatio")),
        "log_begin": begin,
        "log_end": end,
        "put_rate": _first(table.get("putTps")),
        "get_rate": _first(table.get("getTransferredTps", table.get("getTransferedTps"))),
        "in_sync": table.get("inSyncReplicas"),
        "voters": table.get("voters"),
        "clock_ahead_ms": ahead_ms,
    }


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _share(text: str | None) -> float | None:
    """Return a share of the disk; brokers with several folders report one, or -1 for none."""
    share = _number(text)
    return share if share is not None and share <= 1 else None


def _first(text: str | None) -> float | None:
    """Return the first of three rates: of the last 10 s."""
    return _number((text or "").partition(" ")[0])


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
