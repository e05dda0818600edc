"""The checks of one queue and group together, and which event goes to which of them."""

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
from proxy.history.take_overs import TakeOvers
from proxy.history.waiting import Sites

#: Rules of the messages themselves: their copies were parked by those of their time.
_OF_MESSAGES = frozenset(
    {"order_key", "visibility_ms", "retry_ms", "max_deliveries", "filters", "tags"}
)


class Lane:
    """One queue as one group sees it, in the life *number* of its topic, from *began_ns* on.

    *origin* is the lane whose parked messages it holds, *former* the same in the life before.
    """

    __slots__ = (
        "_answers",
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
        """A proxy began to own the queue; *fenced*: the broker takes no late commits."""
        self.life.granted(event["epoch"])
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
        """The owner goes on by other rules, or the order key changes."""
        if event["epoch"] == self.facts.epoch and event["e"] == "order_key":
            self._keys.changed(event)
            self._kept.changed(event)
        elif event["epoch"] == self.facts.epoch:
            if self._origin is not None:  # as in its own+: nothing of a copy is judged by these
                event = {name: each for name, each in event.items() if name not in _OF_MESSAGES}
            self.take_overs.rules(event)
            self.ownership.go_by(event)

    def deliver(self, event: Event, key: str | None) -> None:
        """A job was handed out. *key* is that of its send, if it had one."""
        if self.ownership.fenced(event):
            return
        since = self.facts.key_since
        newer = since is None or event["offset"] >= since
        if key and newer and self.facts.rules.order_key == "KEY" and event["order"] != key:
            self.facts.violation(
                "N1",
                f"offset {event['offset']} of key {key!r} is kept in order as {event['order']!r}:"
                " it waits for others' sake",
            )
        (self._origin or self).pauses.handed_out(event, self.facts)
        if self._origin is None:
            self.parking.handed_out(event)
            self._keys.handed_out(event)
        elif event.get("origin_offset") is not None:
            self._origin.parking.copy_handed_out(event)
        self._answers.handed_out(event, self.facts, self.deliveries.leases)
        self.life.handed_out(event["offset"])
        self.deliveries.deliver(event)

    def action_failed(self, event: Event) -> None:
        """An action failed on a job that was about to be handed out."""
        if not self.ownership.fenced(event):
            self.deliveries.action_failed(event)

    def replay(self, event: Event) -> None:
        """A lease was given once more to the pull that got it."""
        self._answers.replayed(event, self.facts, self.deliveries.leases)

    def finish(self, event: Event) -> None:
        """A job came to its end."""
        if self.life.passes_over(event) or self.ownership.fenced(event):
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
            if event["outcome"] == "deleted" and event.get("order") is not None:
                self._origin.parking.copy_deleted(event["order"])
            self._origin.parking.copy_finished(event.get("origin_offset", origin))
        if event["outcome"] == "skipped":
            self.pauses.judge_act(event, f"that offset {event['offset']} was skipped")
        self.ownership.finish(event)

    def deleted(self, event: Event) -> None:
        """Retention deleted messages that this owner had not read. An owner before may have handed
        some out.
        """
        offsets = range(event["from"], event["to"])
        if self._origin is not None:
            self._origin.parking.copies_deleted(offsets)
        for offset in self.deliveries.unfinished_in(offsets):
            self.finish({**event, "e": "finish", "offset": offset, "outcome": "deleted"})
        self.life.claimed(event["to"])
        self.facts.gone.add(event["from"], event["to"])

    def retry(self, event: Event) -> None:
        """Somebody had a message offered without waiting for its retry."""
        if event["epoch"] == self.facts.epoch:
            self.deliveries.hastened(event)

    def lease(self, event: Event) -> None:
        """A lease ended by a verdict or otherwise, or was extended."""
        if self.life.passes_over(event) or self.ownership.late(event):
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

    def handle_start(self, event: Event) -> None:
        """A handler began."""
        offset, lease = event["offset"], event["lease"]
        alive = self.deliveries.leases.alive(lease, offset=offset)
        self._handler_acks.start(event, alive=alive)
        self.handlings.start(event)

    def handle_end(self, event: Event) -> None:
        """A handler ended."""
        self._handler_acks.end(event)
        self.handlings.end(event)

    def commit(self, event: Event, *, fenced: bool) -> None:
        """An offset was committed; *fenced*: the broker takes none of former owners."""
        if self.facts.deleted or (not fenced and self.ownership.took_late_commit(event)):
            return
        if not self.ownership.fenced(event):
            self.life.claimed(event["offset"])
            self.ownership.commit(event)

    def record(self, event: Event) -> None:
        """An ownership record was stored; one of a former owner counts for nothing."""
        if event["epoch"] == self.facts.epoch:
            self.deliveries.durability.recorded(event)

    def reset(self, event: Event) -> None:
        """A person had the group go on at another offset, after the end of the period."""
        if event["epoch"] == self.facts.epoch:
            self.facts.begin_at(event["to"])
            self.facts.commit(0)
            self.facts.gone.forget(event["to"])
            self.deliveries.reset(event["to"], event["t_ns"])
            self.handlings.reset()
            self.pauses.judge_reset(event)

    def window(self, event: Event) -> None:
        """So many jobs are in memory."""
        if event["jobs"] >= event["limit"] or event.get("memory_full"):
            self.deliveries.wanted.full(event["t_ns"])
        if event["jobs"] <= event["limit"]:
            self.facts.jobs_fit()
        elif event["jobs"] > self.facts.jobs_before:
            self.facts.violation(
                "N2", f"{event['jobs']} messages were in memory, {event['limit']} may be"
            )

    def done(self, offset: int) -> bool:
        """At the end: True if the message came to its end, or waits for a redrive."""
        return self.facts.done(offset) and not self.parking.lost(offset)

    def never_came(self, offset: int, key: str | None) -> None:
        """At the end: the message came to no end. *key* is that of its send."""
        if self.deliveries.unfinished(offset) is not None:
            return
        self.deliveries.wanted.never_came(offset, key)
        until_ns = self.facts.served_until_ns
        if until_ns is not None:
            self.deliveries.progress.never_came(offset, key, until_ns)

    def missing(self, offset: int, key: str | None) -> None:
        """At the end: the message came to no end here; told before any is judged."""
        if self.deliveries.unfinished(offset) is None:
            self.deliveries.wanted.missing(offset, key)

    def judge_end(self) -> None:
        """The histories end."""
        wanted, leases = self.deliveries.wanted, list(self.deliveries.leases)
        self.ownership.judge_end()
        wanted.judge_end(leases)
        self.life.judge_end()
