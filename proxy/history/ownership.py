"""W1, W2, C1, C2 and C3: owners of a queue and their commits.

Periods are distinguished by epoch, not by the order of events, as a process may be stopped between
a grant and its event. A decision of an owner before the next epoch was granted is no violation if
it is recorded later; it has no effect.
"""

from __future__ import annotations

from proxy.history.deliveries import Deliveries
from proxy.history.facts import LaneFacts, Rules
from proxy.history.freshness import Freshness
from proxy.history.reader import Event
from proxy.history.sites import Sites

#: Outcomes by which an owner that has lost its queue unnoticed finishes no message of its
#: successor.
_HARMLESS = frozenset({"filtered", "deleted"})


class Ownership:
    """Ownership periods and commits of one queue and group."""

    def __init__(self, facts: LaneFacts, deliveries: Deliveries, sites: Sites) -> None:
        self._facts = facts
        self._deliveries = deliveries
        self._sites = sites
        self._freshness = Freshness(facts, deliveries.settled)
        self.node: str | None = None
        self._granted_ns = 0  # latest time at which the newest epoch was granted
        self._handed_over_ns: int | None = None  # hand-over time of the previous period
        self._leased_then = False
        self.void = 0
        self._period = -1
        self._superseded = False
        self._came_late: set[int] = set()  # late epochs of former owners, above the newest one

    def own(self, event: Event, *, fenced: bool) -> None:
        """Begin an ownership period; *fenced*: the broker refuses commits of former owners.

        The owner of a queue also owns its twin with the parked copies; ``period`` is then the epoch
        of the origin. An ``own+`` of a twin with an older ``period`` is late and owns nothing.
        Without fencing, an unanswered commit of a former owner may have been stored late: the new
        owner then counts as finished the messages that the owner in between repeated.
        """
        facts, epoch = self._facts, event["epoch"]
        period = event.get("period", self._period)
        if period < self._period:
            self._came_late.add(epoch)
            return
        self._period = period
        if epoch <= facts.epoch:
            if epoch == facts.epoch or self.was_asked_later(event):
                facts.violation(
                    "W1",
                    f"{event.get('owner')} became owner with epoch {epoch} after {facts.epoch}",
                )
            if epoch < facts.epoch:
                return  # granted before the newest one and recorded late, or invalid
        if facts.epoch < 0:
            facts.begin_at(0 if facts.reads_all else event.get("begin", 0))
        elif not fenced:
            self._deliveries.close_known(below=event.get("begin", 0))
        self._enter(event)
        facts.jobs_fit()
        self.apply_rules(event)
        self._deliveries.close_unwanted()

    def was_asked_later(self, event: Event) -> bool:
        """Return True if the epoch of this ``own+`` was requested after the newest one
        was granted.
        """
        return _when(event, "asked_ns") > self._granted_ns

    def apply_rules(self, event: Event) -> None:
        """Apply the rules in *event*."""
        facts, rules = self._facts, Rules.of(event)
        if rules != facts.rules:
            facts.allow_jobs(event.get("jobs", 0))
            self._deliveries.rules_changed()
        facts.apply_rules(rules, event["t_ns"])
        self._deliveries.allow_failed_again()
        if facts.site is not None and event["node"] == self.node:
            facts.site.limit_leases(event.get("max_leased"), event["t_ns"])

    def drain(self, event: Event) -> None:
        """Note that the owner stops delivering."""
        if self._is_owner(event):
            self._stop_serving(event["t_ns"])

    def disown(self, event: Event) -> None:
        """End the period: the owner released the queue."""
        if not self._is_owner(event):
            return
        self._stop_serving(event["t_ns"])
        self._deliveries.leases.judge_end(event["t_ns"])
        self.node = None
        self._deliveries.group_progress.disowned(event["t_ns"])
        self._leased_then = self._deliveries.end_all_leases(event["t_ns"])
        if event.get("reason") == "handed over":
            self._handed_over_ns = event["t_ns"]
        elif event.get("reason") == "reset":
            self._facts.commit(0)

    def _is_owner(self, event: Event) -> bool:
        """Return whether *event* comes from the owner. Another one may have had the same epoch in a
        life that a restored log has ended.
        """
        return bool(event["epoch"] == self._facts.epoch and event["node"] == self.node)

    def fenced(self, event: Event) -> bool:
        """Return True if *event* comes from a period that has ended; report W2 if it was decided
        later and had an effect.
        """
        facts, epoch, what = self._facts, event["epoch"], event["e"]
        if self._has_ended(epoch):
            if self._takes_effect(event):
                facts.violation(
                    "W2",
                    f"{what} of offset {event['offset']} with epoch {epoch} after {facts.epoch}"
                    " began",
                )
            return True
        if self._superseded and what == "finish":
            return True  # of a message that the queue has no more; nor does its verdict count
        if epoch > facts.epoch:
            self._enter(event)  # its own+ is in a history that was not given
        elif self.node is None and what == "deliver":
            facts.violation("W2", f"offset {event['offset']} was delivered without an owner")
        elif what == "deliver" and event["node"] != self.node:
            facts.violation(
                "W1",
                f"{event['node']} delivered offset {event['offset']} in epoch {epoch} of"
                f" {self.node}",
            )
        return False

    def late(self, event: Event) -> bool:
        """Return True if *event* ends or extends a lease of a period that has ended."""
        if not self._superseded and not self._has_ended(event["epoch"]):
            return False
        self.void += event["e"] == "ack_ok"
        return True

    def superseded(self, t_ns: int) -> None:
        """Note that the queue has an owner in the next life of its topic."""
        self._superseded = True
        self._deliveries.end_all_leases(t_ns)

    def _has_ended(self, epoch: int) -> bool:
        return epoch < self._facts.epoch or epoch in self._came_late

    def _takes_effect(self, event: Event) -> bool:
        match event["e"]:
            case "deliver":
                if _when(event, "at_ns") <= self._granted_ns:
                    self._facts.excuse(event["offset"], event["lease"])
                    return False
            case "commit":
                return _when(event, "asked_ns") > self._granted_ns
            case "act_fail":
                return _when(event, "at_ns") > self._granted_ns
            case "finish":  # harmless if the new owner delivers the message again
                if _when(event, "at_ns") <= self._granted_ns:
                    return False
                open_still = self._deliveries.unfinished(event["offset"]) is not None
                return not open_still and event["outcome"] not in _HARMLESS
        return True

    def finish(self, event: Event) -> None:
        """Record the end of a job in the current period."""
        self._deliveries.finish(event)
        self._freshness.finished(event["t_ns"])

    def commit(self, event: Event) -> None:
        """Judge a committed offset stored by the broker."""
        facts, offset = self._facts, event["offset"]
        if offset < facts.committed:
            facts.violation("C1", f"committed offset fell from {facts.committed} to {offset}")
        lowest = self._deliveries.lowest_open
        if lowest is not None and lowest < offset:
            facts.violation("C2", f"offset {offset} was committed while {lowest} was unfinished")
        facts.commit(offset)
        self._deliveries.durability.committed(offset, event["t_ns"])
        self._freshness.committed(event["t_ns"])

    def took_late_commit(self, event: Event) -> bool:
        """Return True if *event* is a commit of a period that has ended, which the broker may have
        stored.

        The lower offset then holds until the owner's next commit.
        """
        facts = self._facts
        if not self._has_ended(event["epoch"]):
            return False
        facts.commit(min(facts.committed, event["offset"]))
        return True

    def forget_commits(self) -> None:
        """Forget the committed offset: a killed broker may have lost commits that it had answered.

        It keeps messages, but stores consumer offsets only every few seconds.
        """
        self._facts.commit(0)

    def judge_end(self) -> None:
        """Judge the last owner until its own last event, at the end of the histories."""
        if self.node is not None:
            t_ns = self._sites.last_ns(self.node)
            self._deliveries.leases.judge_end(t_ns)
            self._stop_serving(t_ns)

    def _stop_serving(self, t_ns: int) -> None:
        facts = self._facts
        if facts.served_until_ns is None:
            facts.serve_until(t_ns)
            self._deliveries.progress.end(t_ns)
            self._freshness.judge(t_ns)

    def _enter(self, event: Event) -> None:
        facts, t_ns = self._facts, event["t_ns"]
        handed_over_ns, self._handed_over_ns = self._handed_over_ns, None
        leased = self._deliveries.end_all_leases(t_ns) or self._leased_then
        self._leased_then = False
        site = self._sites.of(event["node"], facts.group)
        facts.new_period(
            event["epoch"],
            site=site,
            clock=site.clock(facts.topic, t_ns),
            serves_from_ns=max(t_ns, event.get("hold_until_ns") or 0),
        )
        self.node = event["node"]
        self._deliveries.group_progress.owned(event["node"], t_ns)
        self._granted_ns = t_ns
        peace = handed_over_ns is not None and facts.faults.none_since(handed_over_ns)
        self._deliveries.new_period(t_ns, handed_over=peace, leased=leased)
        self._freshness.new_period()


def _when(event: Event, field: str) -> int:
    """Return the time in *field*, or that of the event if it is missing."""
    t_ns: int = event["t_ns"] if event.get(field) is None else event[field]
    return t_ns
