"""O5: while the order key of a queue changes, what is newer waits for what is older of its new key.

The proxy says with each older message that it hands out which key the new rule gives it. So it need
not be believed what it counted, nor when.
"""

from __future__ import annotations

from proxy.history.facts import FINISHED, LaneFacts
from proxy.history.reader import Event


class KeyChanges:
    """The change that one queue and group is in, if any: messages below the switch are *older*."""

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._open: dict[str, set[int]] = {}  # older, handed out and unfinished, by new key
        self._key_of: dict[int, str] = {}  # the same by offset
        self._newer: dict[str, int] = {}  # by key, handed out in this period
        self._newer_before: dict[str, int] = {}  # in periods before

    def own(self, event: Event) -> None:
        """A period begins; it may go on with a change, or have missed one."""
        since = event.get("key_since")
        if since != self._facts.key_since:
            self._begin(since, event["t_ns"])
        self._newer_before |= self._newer
        self._newer = {}

    def changed(self, event: Event) -> None:
        """Another rule begins to hold, or nothing older is left."""
        self._begin(None if event["through"] else event["since"], event["t_ns"])
        self._facts.go_by_order_key(event["order_key"])

    def _begin(self, since: int | None, t_ns: int) -> None:
        if since is None:
            self._facts.keys_settled_ns = t_ns
        self._facts.key_since = since
        for known in (self._open, self._key_of, self._newer, self._newer_before):
            known.clear()

    def handed_out(self, event: Event) -> None:
        """A message was handed out."""
        since, offset = self._facts.key_since, event["offset"]
        if since is None:
            return
        if offset >= since:
            if (order := event["order"]) is not None:
                self._judge_newer(offset, order)
        elif (key := event.get("next_order")) is not None:
            self._judge_older(offset, key)
            self._open.setdefault(key, set()).add(offset)
            self._key_of[offset] = key

    def _judge_newer(self, offset: int, key: str) -> None:
        if older := self._open.get(key):
            self._facts.violation(
                "O5",
                f"key {key!r}: offset {offset} was handed out by the new order key before"
                f" {min(older)}, which is older and has that key too, had finished",
            )
        self._newer[key] = offset

    def _judge_older(self, offset: int, key: str) -> None:
        newer = self._newer.get(key)
        if newer is None and not self._facts.flags.get(offset) & FINISHED:
            newer = self._newer_before.get(key)
        if newer is not None:
            self._facts.violation(
                "O5",
                f"key {key!r}: offset {offset}, which has that key by the new rule, was handed out"
                f" after {newer}",
            )

    def finished(self, offset: int) -> None:
        """A message came to its end."""
        if (key := self._key_of.pop(offset, None)) is not None:
            self._open[key].discard(offset)
            if not self._open[key]:
                del self._open[key]
