"""Messages that may be missing in a world, by facts that its history does not contain.

The history checker accepts a message as finished that a proxy reports as deleted, or that an
operator skipped. The world knows which messages it deleted and damaged: no other one may be
reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from testkit.explorer.plan import Plan
from testkit.simulation.history import Event

#: Actions after which messages are deleted rightly.
_DELETING = frozenset({"recreate"})
#: A pull that was accepted before its token expired may be answered until then.
_PULL_MS = 60_000


def wrong_losses(plan: Plan, events: Sequence[Event], reported: Sequence[str]) -> list[str]:
    """Return a sentence for each message that was wrongly given up.

    *reported*: intact messages that were reported as damaged.
    """
    found = list(reported)
    stored = _Stored.of(plan, events)
    kinds = {action.kind for action in plan.actions}
    if kinds & _DELETING or any("retention_bytes" in each for each in plan.brokers.values()):
        return found
    for event in events:
        place = f"{event.get('topic')}/{event.get('queue')}"
        if event["e"] == "deleted" and stored.any_in(event):
            found.append(f"{place}: {event['from']} to {event['to']} count as deleted")
        elif event["e"] == "finish" and event["outcome"] == "deleted":
            found.append(f"{place}: offset {event['offset']} counts as deleted")
    return found


@dataclass(frozen=True, slots=True)
class _Stored:
    """Offsets of messages that a broker confirmed, by topic and queue.

    A write that a power loss interrupted leaves a hole if other files of the log reached the disk.
    Its messages were never confirmed, and readers pass over them.
    """

    may_lose_writes: bool
    offsets: dict[tuple[str, str], set[int]]

    @classmethod
    def of(cls, plan: Plan, events: Sequence[Event]) -> _Stored:
        stored = cls(any(action.kind == "power" for action in plan.actions), {})
        for event in events:
            if event["e"] == "send_ok" and "offset" in event:
                place = event["topic"], event["queue"]
                stored.offsets.setdefault(place, set()).add(event["offset"])
        return stored

    def any_in(self, deleted: Event) -> bool:
        """Return whether the offsets of a ``deleted`` may belong to a message."""
        place = deleted["topic"], deleted["queue"]
        lost = range(deleted["from"], deleted["to"])
        return not self.may_lose_writes or not self.offsets.get(place, set()).isdisjoint(lost)


def early_deletions(plan: Plan, logs: Mapping[str, Path]) -> list[str]:
    """Return a sentence for each broker that deleted a file of its log before its time: no world
    lasts as long as the retention. *logs*: their folders by broker.
    """
    if any("retention_bytes" in each for each in plan.brokers.values()):
        return []
    first = {
        name: min((int(each.name) for each in log.iterdir() if each.name.isdigit()), default=0)
        for name, log in logs.items()
    }
    return [f"{name} deleted its log below {at}" for name, at in first.items() if at]


def wrong_deliveries(plan: Plan, events: Sequence[Event]) -> list[str]:
    """Return a sentence for each delivery to a client whose token had expired by then."""
    expired_ms = {
        token["name"]: datetime.fromisoformat(token["expires"]).timestamp() * 1000
        for token in plan.proxy_settings.get("tokens", ())
        if "expires" in token
    }
    ends_ms = {
        f"consumer-{number}": expired_ms[each.token]
        for number, each in enumerate(plan.consumers)
        if each.token in expired_ms
    }
    clocks = any(action.kind == "clock" for action in plan.actions)
    return [
        f"{event['topic']}/{event['queue']}: offset {event['offset']} was delivered to"
        f" {event['consumer']}, whose token had expired"
        for event in events
        if event["e"] == "deliver"
        and not clocks  # a proxy's own clock counts
        and event["wall_ms"] > ends_ms.get(event["consumer"], event["wall_ms"]) + _PULL_MS
    ]
