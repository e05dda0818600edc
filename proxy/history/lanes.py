"""All checks of one queue and group, and the events that each of them receives."""

from __future__ import annotations

from proxy.history.answers import Answers
from proxy.history.deliveries import Deliveries
from proxy.history.facts import LaneFacts
from proxy.history.handler_acks import HandlerAcks
from proxy.history.handlings import Handlings
from proxy.history.kept_state import KeptState
from proxy.history.key_changes import KeyChanges
from proxy.history.lives import Life
from proxy.history.ownership import Ownership
from proxy.history.parking import Parking
from proxy.history.pauses import Audits, Pauses
from proxy.history.reader import Event
from proxy.history.sites import Sites
from proxy.history.take_overs import TakeOvers

#: Rules of the messages: copies were parked under the rules of their time.
_OF_MESSAGES = frozenset(
    {"order_key", "visibility_ms", "retry_ms", "max_deliveries", "filters", "tags"}
)


class Lane:
    """One queue as one group sees it, in life *number* of its topic, from *began_ns* on.

    *origin* is the lane whose parked messages this one holds, *former* this lane in the previous
    life.
    """

    __slots__ = (
        "_answers",
        "_audits",
        "_handler_acks",
        "_kept",
        "_keys",
        "_origin",
        "deliveries",
        "facts",
        "former",
        "handlings",
        "life",
        "ownership",
        "parking",
        "pauses",
        "take_overs",
    )

    def __init__(
        self,
        facts: LaneFacts,
        sites: Sites,
        answers: Answers,
        audits: Audits,
        *,
        origin: Lane | None,
        former: Lane | None,
        number: int,
        began_ns: int,
    ) -> None:
        self.facts = facts
        self.former: Lane | None = former
        self.deliveries = Deliveries(facts, sites.demands)
        self.life: Life = Life(
            facts,
            number,
            deliveries=self.deliveries,
            former=None if former is None else former.life,
            began_ns=began_ns,
        )
        self.ownership = Ownership(facts, self.deliveries, sites)
        self.handlings = Handlings(facts)
        self.parking = Parking(facts)
        if former is not None and facts.kept:
            self.parking.restored(former.parking)
        self._audits = audits
        self.pauses = Pauses(facts, audits)
        self._kept = KeptState(facts, self.parking)
        self._keys = KeyChanges(facts)
        self._handler_acks = HandlerAcks(facts)
        waits = None if origin is None else origin.take_overs
        before = None if former is None else former.take_overs
        self.take_overs: TakeOvers = TakeOvers(facts, origin=waits, former=before)
        self._answers = answers
        self._origin = origin

    def own(self, event: Event, *, fenced: bool) -> None:
        """Begin an ownership period; *fenced*: the broker refuses late commits."""
        if self._origin is not None:  # copies keep the order key of their time
            event = {name: each for name, each in event.items() if name != "order_key"}
        self.life.granted(event["epoch"])
        self._reset_perhaps(event)
        self.take_overs.own(event)
        self.ownership.own(event, fenced=fenced)
        if event["epoch"] != self.facts.epoch:
            return
        self._handler_acks.new_period()
        if self._origin is None:
            self._kept.taken_over(event)
            self._keys.own(event)
            self.pauses.taken_over(event)
            self.parking.taken_over(event)
        else:
            self._origin.parking.twin_taken_over(self.facts.known_ns)

    def rules(self, event: Event) -> None:
        """Apply changed rules of the owner, or a change of the order key."""
        if event["epoch"] == self.facts.epoch and event["e"] == "order_key":
            self._keys.changed(event)
            self._kept.changed(event)
        elif event["epoch"] == self.facts.epoch:
            self.take_overs.rules(event)  # leases of copies are as long as those of other messages
            if self._origin is not None:  # and other rules of messages of that time
                event = {name: each for name, each in event.items() if name not in _OF_MESSAGES}
            self.ownership.apply_rules(event)

    def deliver(self, event: Event, key: str | None, tag: str | None = None) -> None:
        """Judge a delivery; *key* and *tag* are those of its send, if it had any."""
        if self.ownership.fenced(event):
            return
        since = self.facts.key_since
        newer = since is None or event["offset"] >= since
        if key and newer and self.facts.rules.order_key == "KEY" and event["order"] != key:
            self.facts.violation(
                "N1",
                f"offset {event['offset']} of key {key!r} is kept in order as {event['order']!r}:"
                " it waits for other keys",
            )
        (self._origin or self).pauses.delivered(event, self.facts)
        if self._origin is None:
            self.parking.delivered(event)
            self._keys.delivered(event)
        elif event.get("origin_offset") is not None:
            self._origin.parking.copy_delivered(event)
        self._answers.delivered(event, self.facts, self.deliveries.leases)
        self.life.delivered(event["offset"])
        self.deliveries.deliver(event, tag)

    def action_failed(self, event: Event) -> None:
        """Judge an action that failed on a job before its delivery."""
        if not self.ownership.fenced(event):
            self.deliveries.action_failed(event)

    def replay(self, event: Event) -> None:
        """Judge a lease repeated for the same pull."""
        self._answers.replayed(event, self.facts, self.deliveries.leases)

    def finish(self, event: Event) -> None:
        """Judge the end of a job."""
        if self.life.ignores(event) or self.ownership.fenced(event):
            return
        self.life.claimed(event["offset"] + 1)
        message = self.deliveries.unfinished(event["offset"])
        if self._origin is None:
            slot = None if message is None else message.slot
            again = self.facts.done(event["offset"])
            self.parking.finished(event, slot if isinstance(slot, str) else None, again=again)
            parked = event["outcome"] == "parked"
            self._keys.finished(event["offset"], event["t_ns"], parked=parked)
        else:
            origin = None if message is None else message.origin
            origin = event.get("origin_offset", origin)
            if origin is None and event["outcome"] in ("deleted", "skipped"):
                self._origin.parking.copy_lost(event["offset"], event.get("order"))
            self._origin.parking.copy_finished(origin)
        if event["outcome"] == "skipped":
            self.pauses.judge_action(event, f"that offset {event['offset']} was skipped")
        self.ownership.finish(event)

    def deleted(self, event: Event) -> None:
        """Record that retention deleted messages unread by this owner; earlier owners may have
        delivered some.
        """
        offsets = range(event["from"], event["to"])
        if self._origin is not None:
            self._origin.parking.copies_deleted(offsets)
        for offset in self.deliveries.unfinished_in(offsets):
            self.finish({**event, "e": "finish", "offset": offset, "outcome": "deleted"})
        self.life.claimed(event["to"])
        self.facts.deleted_offsets.add(event["from"], event["to"])

    def retry(self, event: Event) -> None:
        """Record an operator's retry of a failed message without its delay."""
        if event["epoch"] == self.facts.epoch:
            self.deliveries.retry_now(event)

    def lease(self, event: Event) -> None:
        """Judge the end of a lease, by a verdict or otherwise, or its extension."""
        if self.life.ignores(event) or self.ownership.late(event):
            return
        if event["e"] == "extend":
            self.take_overs.extended(event)
            self.deliveries.leases.extend(event)
            return
        self._handler_acks.ended(event)
        match event["e"]:
            case "ack_ok":
                self.deliveries.ack_ok(event)
            case "expire":
                self.deliveries.expire(event)
            case "revoke":
                self.deliveries.revoke(event)
            case "unsent":
                self.deliveries.unsent(event)

    def handle_start(self, event: Event, tag: str | None = None) -> None:
        """Judge the start of a handler; *tag* is that of the message's send, if it had any."""
        offset, lease = event["offset"], event["lease"]
        alive = self.deliveries.leases.alive(lease, offset=offset)
        self._handler_acks.start(event, alive=alive)
        self.handlings.start(event, tag)

    def handle_end(self, event: Event) -> None:
        """Judge the end of a handler."""
        self._handler_acks.end(event)
        self.handlings.end(event)

    def commit(self, event: Event, *, fenced: bool) -> None:
        """Judge a commit; *fenced*: the broker refuses those of former owners."""
        if self.facts.deleted or (not fenced and self.ownership.took_late_commit(event)):
            return
        if not self.ownership.fenced(event):
            self.life.claimed(event["offset"])
            self.ownership.commit(event)

    def record(self, event: Event) -> None:
        """Record a stored ownership record; those of former owners do not count."""
        if event["epoch"] == self.facts.epoch:
            self.deliveries.durability.recorded(event)

    def reset(self, event: Event) -> None:
        """Move the group to another offset for an operator, after the end of the period."""
        if event["epoch"] == self.facts.epoch:
            self.facts.begin_at(event["to"])
            self.facts.commit(0)
            self.facts.deleted_offsets.forget(event["to"])
            self.deliveries.reset(event["to"], event["t_ns"])
            self.handlings.reset()
            self.pauses.judge_reset(event)

    def _reset_perhaps(self, event: Event) -> None:
        """Apply a reset that no owner confirmed, if the new owner begins there."""
        place = event["group"], event["topic"], event["queue"]
        asked = self._audits.unconfirmed_reset(place)
        if asked is not None and event.get("begin") == asked["after"]["base"]:
            what = {"from": asked["before"]["base"], "to": event["begin"], "audit": asked["id"]}
            self.reset({**what, "epoch": self.facts.epoch, "t_ns": event["t_ns"]})

    def window(self, event: Event) -> None:
        """Judge the number of jobs in memory."""
        if event["jobs"] >= event["limit"] or event.get("memory_full"):
            self.deliveries.group_progress.full(event["t_ns"])
        if event["jobs"] <= event["limit"]:
            self.facts.jobs_fit()
        elif event["jobs"] > self.facts.jobs_before:
            self.facts.violation(
                "N2", f"{event['jobs']} messages were in memory, the limit is {event['limit']}"
            )

    def done(self, offset: int) -> bool:
        """Return True at the end if the message has finished or waits for a redrive."""
        if self.facts.done(offset) and not self.parking.lost(offset):
            return True
        kept = self.former is not None and offset < self.facts.kept
        return kept and self.former is not None and self.former.done(offset)

    def judge_undelivered(self, offset: int, key: str | None) -> None:
        """Judge at the end a message that has not finished; *key* is that of its send."""
        if self.deliveries.unfinished(offset) is not None:
            return
        self.deliveries.group_progress.judge_undelivered(offset, key)
        until_ns = self.facts.served_until_ns
        if until_ns is not None:
            self.deliveries.progress.judge_undelivered(offset, key, until_ns)

    def missing(self, offset: int, key: str | None) -> None:
        """Note at the end a message that has not finished here; called for all before any is
        judged.
        """
        if self.deliveries.unfinished(offset) is None:
            self.deliveries.group_progress.missing(offset, key)

    def judge_end(self) -> None:
        """Judge the lane at the end of the histories."""
        progress, leases = self.deliveries.group_progress, list(self.deliveries.leases)
        self.ownership.judge_end()
        progress.judge_end(leases)
        self.life.judge_end()
