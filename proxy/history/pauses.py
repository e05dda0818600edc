"""R4: no message of a paused key or queue is delivered. R5: operators' actions are audited."""

from __future__ import annotations

from typing import Any

from proxy.history.facts import LaneFacts
from proxy.history.reader import Event


class Audits:
    """Records of the audit topic, stored by the proxies. Shared by all queues."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}  # by id: names of its missing fields
        #: Resets that may be stored although no owner confirmed it, by group, topic and queue.
        self._resets: dict[tuple[str, str, str], Event] = {}

    def seen(self, event: Event) -> None:
        """Note a stored audit record."""
        if event.get("verb") == "offsets reset":
            self._note_reset(event)
        if event.get("phase") != "begin":
            return
        missing = [name for name in ("by", "reason") if not event.get(name)]
        missing += [name for name in ("before", "after") if event.get(name) is None]
        self._seen[event["id"]] = ", ".join(missing)

    def _note_reset(self, event: Event) -> None:
        place = str(event.get("group")), str(event.get("topic")), str(event.get("target"))
        if event.get("phase") == "begin":
            self._resets[place] = event
        elif not event.get("failed"):
            self._resets.pop(place, None)

    def unconfirmed_reset(self, place: tuple[str, str, str]) -> Event | None:
        """Return and forget the latest reset of a queue, by its group, topic and name, that may be
        stored although no owner confirmed it.

        Its proxy stopped, or the answer of the broker was lost.
        """
        return self._resets.pop(place, None)

    def problem(self, audit: Any) -> str | None:
        """Return the fault in the audit record named by an action; None if there is none."""
        if not isinstance(audit, str):
            return "names no audit record"
        if (missing := self._seen.get(audit)) is None:
            return f"names the audit record {audit}, which was not stored before"
        return f"has an audit record without {missing}" if missing else None


class Pauses:
    """Paused keys of one queue; null stands for the whole queue."""

    def __init__(self, facts: LaneFacts, audits: Audits) -> None:
        self._facts = facts
        self._audits = audits

    def pause(self, event: Event) -> None:
        """Note that *order* is paused and the pause is recorded."""
        if event["epoch"] == self._facts.epoch:
            self._facts.paused.add(event["order"])

    def resume(self, event: Event) -> None:
        """Note that *order* is delivered again."""
        if event["epoch"] == self._facts.epoch:
            self._facts.paused.discard(event["order"])
            self._facts.resumed_ns[event["order"]] = event["t_ns"]

    def taken_over(self, event: Event) -> None:
        """Compare the pauses known to a new owner with those before."""
        facts, known = self._facts, set(event.get("paused", ()))
        forgotten = facts.pause_only(known, event["t_ns"])
        for order in () if facts.records_damaged else sorted(forgotten, key=str):
            facts.violation(
                "R4",
                f"{_name(order)} was paused, but its owner of epoch {facts.epoch} does not know it",
            )

    def delivered(self, event: Event, facts: LaneFacts) -> None:
        """Judge the delivery of a message, or of a copy, in the queue of *facts*."""
        order = event["order"]
        if self._facts.paused & {order, None}:
            what = order if order in self._facts.paused else None
            facts.violation(
                "R4", f"offset {event['offset']} was delivered although {_name(what)} is paused"
            )

    def judge_reset(self, event: Event) -> None:
        """Judge an operator's reset, perhaps with an expected offset."""
        before, what = event["from"], f"the reset from {event['from']} to {event['to']}"
        self.judge_action(event, what)
        if event.get("expect") not in (None, before):
            self._facts.violation("R5", f"{what} was asked for at {event['expect']} only")

    def judge_action(self, event: Event, what: str) -> None:
        """Report R5 unless the action *what* has an audit record with actor and reason."""
        if (problem := self._audits.problem(event.get("audit"))) is not None:
            self._facts.violation("R5", f"{what} {problem}")


def _name(order: str | None) -> str:
    return "the whole queue" if order is None else f"key {order!r}"
