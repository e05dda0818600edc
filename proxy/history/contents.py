"""I1: a handler receives the bytes that were sent."""

from __future__ import annotations

from proxy.history.findings import Findings
from proxy.history.reader import Event


class Contents:
    """Digests of sent messages, kept as one number per message."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._sent: dict[str, int] = {}

    def sent(self, event: Event) -> None:
        """Record a send. A repeated send and a redriven dead letter have the content of
        the first.
        """
        if (digest := event.get("digest")) is not None:
            self._sent.setdefault(event["msg"], hash(digest))
        elif (first := event.get("first")) in self._sent:
            self._sent.setdefault(event["msg"], self._sent[first])

    def handled(self, event: Event, at_place: str | None) -> None:
        """Judge the start of a handler; *at_place*: the message stored at the offset it was read
        from.
        """
        digest = event.get("digest")
        if digest is None:
            return
        names = [name for name in (event.get("msg"), at_place) if name in self._sent]
        if names and self._sent[names[0]] != hash(digest):
            self._findings.add(
                "I1",
                f"group {event['group']}, {event['topic']}/{event['queue']}: key"
                f" {event['order']!r}: message {names[0]} at offset {event['offset']} was handled"
                " with other bytes than were sent",
            )
