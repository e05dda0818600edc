"""R4: nothing of a paused key, or of a paused queue, is handed out; R5: acts are on record, and
what was asked for.
"""

from __future__ import annotations

from typing import Any

from proxy.history.facts import LaneFacts
from proxy.history.reader import Event


class Audits:
    """The records of the audit topic, as the proxies stored them. Shared by all queues."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}  # by id: what is missing in it, if anything

    def seen(self, event: Event) -> None:
        """A record is stored."""
        if event.get("phase") != "begin":
            return
        missing = [name for name in ("by", "reason") if not event.get(name)]
        missing += [name for name in ("before", "after") if event.get(name) is None]
        self._seen[event["id"]] = ", ".join(missing)

    def problem(self, audit: Any) -> str | None:
        """What is wrong with the record that an act names; None if nothing is."""
        if not isinstance(audit, str):
            return "names no audit record"
        if (missing := self._seen.get(audit)) is None:
            return f"names the audit record {audit}, which was not stored before"
        return f"has an audit record without {missing}" if missing else None


class Pauses:
    """What of one queue is paused; null stands for all of it."""

    def __init__(self, facts: LaneFacts, audits: Audits) -> None:
        self._facts = facts
        self._audits = audits

    def pause(self, event: Event) -> None:
        """*order* is paused, and that is on record."""
        if event["epoch"] == self._facts.epoch:
            self._facts.paused.add(event["order"])

    def resume(self, event: Event) -> None:
        """*order* is handed out again."""
        if event["epoch"] == self._facts.epoch:
            self._facts.paused.discard(event["order"])
            self._facts.resumed_ns[event["order"]] = event["t_ns"]

    def taken_over(self, event: Event) -> None:
        """A new owner says what it knows to be paused."""
        facts, known = self._facts, set(event.get("paused", ()))
        for order in sorted(facts.pause_only(known, event["t_ns"]), key=str):
            facts.violation(
                "R4", f"{_name(order)} was paused, and its owner of epoch {facts.epoch} knows not"
            )

    def handed_out(self, event: Event, facts: LaneFacts) -> None:
        """A message, or a copy of one, was handed out in the queue of *facts*."""
        order = event["order"]
        if self._facts.paused & {order, None}:
            what = order if order in self._facts.paused else None
            facts.violation(
                "R4", f"offset {event['offset']} was handed out although {_name(what)} is paused"
            )

    def judge_reset(self, event: Event) -> None:
        """A person had the group go on elsewhere; perhaps only if it stood where they saw it."""
        before, what = event["from"], f"the reset from {event['from']} to {event['to']}"
        self.judge_act(event, what)
        if event.get("expect") not in (None, before):
            self._facts.violation("R5", f"{what} was asked for at {event['expect']} only")

    def judge_act(self, event: Event, what: str) -> None:
        """Somebody did *what*: who, and why, has to be on record."""
        if (problem := self._audits.problem(event.get("audit"))) is not None:
            self._facts.violation("R5", f"{what} {problem}")


def _name(order: str | None) -> str:
    return "all of the queue" if order is None else f"key {order!r}"
