"""O5: while the order key of a queue changes, newer messages wait for older ones of their new key.

The proxy records, with each older message that it delivers, its key by the new rule. The checker
therefore need not trust the proxy's own counts.
"""

from __future__ import annotations

from proxy.history.facts import FINISHED, LaneFacts
from proxy.history.reader import Event


class KeyChanges:
    """The order key change in progress for one queue and group; messages below the switch are
    *older*.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._open: dict[str, set[int]] = {}  # older, delivered and unfinished, by new key
        self._key_of: dict[int, str] = {}  # the same by offset
        self._old_key_of: dict[int, str | None] = {}
        self._newer: dict[str, int] = {}  # by key, delivered in this period
        self._newer_before: dict[str, int] = {}  # in earlier periods
        self._began_ns = 0  # the current or last change
        self._since = 0
        self._ended_ns: dict[str, int] = {}  # by old or new key: end of the last older message
        self._unknown_ended_ns = 0  # of older messages whose new key is unknown
        self._any_parked = False  # newer messages also wait for copies, of any new key
        facts.set_open_keys(self._open_ns)

    def own(self, event: Event) -> None:
        """Begin an ownership period, which may continue a change or have missed one."""
        since = event.get("key_since")
        if since != self._facts.key_since:
            self._begin(since, event["t_ns"])
        self._newer_before |= self._newer
        self._newer = {}

    def changed(self, event: Event) -> None:
        """Begin another rule, or end the change once no older message is left."""
        self._begin(None if event["through"] else event["since"], event["t_ns"])
        self._facts.apply_order_key(event["order_key"])

    def _begin(self, since: int | None, t_ns: int) -> None:
        if since is not None:
            self._began_ns, self._since, self._unknown_ended_ns = t_ns, since, t_ns
            self._ended_ns.clear()
            self._any_parked = bool(self._facts.parked)
        self._facts.change_keys(since, t_ns)
        for known in (
            *(self._open, self._key_of, self._old_key_of),
            *(self._newer, self._newer_before),
        ):
            known.clear()

    def delivered(self, event: Event) -> None:
        """Judge a delivery."""
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
            self._old_key_of[offset] = event["order"]

    def _judge_newer(self, offset: int, key: str) -> None:
        if older := self._open.get(key):
            self._facts.violation(
                "O5",
                f"key {key!r}: offset {offset} was delivered by the new order key before"
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
                f"key {key!r}: offset {offset}, which has that key by the new rule, was delivered"
                f" after {newer}",
            )

    def finished(self, offset: int, t_ns: int, *, parked: bool) -> None:
        """Record the end of a message; *parked*: its copy has still to finish."""
        if self._facts.key_since is not None and offset < self._facts.key_since:
            self._older_ended(offset, t_ns, parked=parked)
        if (key := self._key_of.pop(offset, None)) is not None:
            self._open[key].discard(offset)
            if not self._open[key]:
                del self._open[key]

    # ---- waits of newer messages ----------------------------------------------------------------

    def _older_ended(self, offset: int, t_ns: int, *, parked: bool) -> None:
        self._any_parked |= parked
        if offset not in self._key_of:
            self._unknown_ended_ns = t_ns
            return
        for key in (self._key_of[offset], self._old_key_of.pop(offset, None)):
            if key is not None:
                self._ended_ns[key] = t_ns

    def _open_ns(self, order: str | int) -> int | None:
        """Return the time since which no older message delays newer ones of the key *order*; None
        while one may. O(messages below the switch).
        """
        facts = self._facts
        if self._any_parked or not isinstance(order, str):
            return None if facts.key_since is not None else facts.keys_settled_ns
        if facts.key_since is not None and self._may_wait(order):
            return None
        return max(self._began_ns, self._unknown_ended_ns, self._ended_ns.get(order, 0))

    def _may_wait(self, order: str) -> bool:
        """Return True if an unfinished older message has this key, or may have it."""
        facts = self._facts
        for offset in range(max(facts.begin, facts.committed), self._since):
            if facts.flags.get(offset) & FINISHED:
                continue
            if offset not in self._key_of:
                return True
            if order in (self._key_of[offset], self._old_key_of.get(offset)):
                return True
        return False
