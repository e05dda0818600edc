"""Verbs that are about all queues of a topic or group, whichever proxies own them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from proxy.cli.connect import actor, change_at_all
from proxy.cli.output import OutputFormat, print_rows
from proxy.errors import OrderlaneError


def change_everywhere(
    http: str, path: str, output: OutputFormat, *, columns: Sequence[str], **asked: Any
) -> None:
    """Pause or resume at the proxy at *http*, and at those that own other queues; print where it
    was done. Raises OrderlaneError for where it was not.
    """
    done, failed = change_at_all(http, path, orjson.dumps({"by": actor(), **asked}))
    rows = [
        {
            "group": each["group"],
            "key": each["key"],
            "queue": queue,
            "paused": each["paused"],
            "proxy": address,
        }
        for address, each in done.items()
        for queue in each["queues"]
    ]
    print_rows(rows, columns=columns, output=output)
    owned = {row["queue"] for row in rows}
    free, hidden = (
        sorted({queue for each in done.values() for queue in each.get(name, ())} - owned)
        for name in ("unowned", "unaddressed")
    )
    if free:
        failed.append(f"nobody owns {', '.join(free)} now: ask again once clients are there")
    if hidden:
        failed.append(
            f"who owns {', '.join(hidden)} left no HTTP address on record: find it by orderlane"
            " owners ls, and ask it by --http"
        )
    if failed:
        raise OrderlaneError("\n".join(failed))
