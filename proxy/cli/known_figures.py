"""Figures of a group's queues from the answers of several proxies. Pure.

The owner of a queue knows its figures; those of a queue without an owner are the newest that a
proxy has. None: unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proxy.diagnosis.findings import span

#: Figures that are known of a queue without an owner, too.
FIGURES = ("lag", "unfinished", "blocked", "parked")


def known_queues(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each queue of a group, from its row at each proxy (``GET /api/groups``).

    ``owned``: here (by one of the proxies), or as in the row of an other queue.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    every = list(groups)
    for group in every:
        for row in group.get("others", ()):
            place = row["topic"], row["queue"]
            if place not in found or _rank(row) > _rank(found[place]):
                found[place] = dict(row)
    for group in every:
        parked = {
            (row.get("for_topic"), row.get("name")): row["unfinished"] + _unread(row)
            for row in group["queues"]
            if is_twin(row)
        }
        for row in group["queues"]:
            if not is_twin(row):
                twin = row["topic"], f"{row['queue']}p"
                found[row["topic"], row["queue"]] = {
                    **row,
                    "owned": "here",
                    # The broker may have more by now if it serves no reads.
                    "lag": None
                    if row.get("read_trouble")
                    else max(0, row["end"] - row["committed"]),
                    # Unknown until the queue of the copies is open, if there are any.
                    "parked": parked.get(twin, None if row.get("parked_keys") else 0),
                }
    return [found[place] for place in sorted(found)]


def is_twin(row: Mapping[str, Any]) -> bool:
    """Return whether *row* is a queue of parked messages."""
    return str(row["topic"]).startswith("%")


def age(row: Mapping[str, Any], now_ms: int) -> str | None:
    """Return how old the figures of a queue without an owner are; None if it has one, or if they
    are unknown.
    """
    if row["owned"] in ("here", "elsewhere") or row["at_ms"] is None:
        return None
    return span((now_ms - row["at_ms"]) / 1000)


def total(rows: Iterable[Mapping[str, Any]], name: str) -> int | None:
    """Return the sum of a figure over *rows*; None if it is unknown of one of them, or no queue is
    known.
    """
    values = [row.get(name) for row in rows]
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _unread(row: Mapping[str, Any]) -> int:
    return max(0, int(row.get("end", 0)) - int(row.get("position", 0)))


def _rank(row: Mapping[str, Any]) -> tuple[bool, int]:
    """Return how good *row* is: another proxy's queue has no figures, newer ones are better."""
    return row["owned"] != "elsewhere", row["at_ms"] or 0
