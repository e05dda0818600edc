"""What of one queue is in the hands of clients: leases, runs, verdicts, retries. Pure.

A *run* is several consecutive jobs of a key that one client got together. It is one lease in
effect: extended, expired and given back as one. Verdicts in it count in its order: one on a later
job waits until those ahead are finished, and at the first that fails the rest goes back, unhandled.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence

from proxy.core.jobs.chains import Job
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.retry_policy import MS
from proxy.core.leases.lease_book import Judged, Lease, Plain
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.handing_out import HandingOut


class HandOuts(HandingOut):
    """The running jobs of one queue in one ownership period. All times are ns."""

    # ---- verdicts; caller: group lane -----------------------------------------------------------

    def settle(
        self,
        *,
        acked: Iterable[LeaseId] = (),
        nacked: Iterable[Nack] = (),
        released: Iterable[LeaseId] = (),
        now_ns: int,
    ) -> Effects:
        """Apply verdicts by lease id. One on a lease that is not live finishes nothing: fenced.
        In a run it waits for those ahead of its lease; all behind one that failed go back.

        Affects: chains (successors become ready), buffer, tracker, window.
        """
        effects = self._on_time(now_ns)
        expired = 0 if effects.plain else len(effects.released)  # they ended with a run that did
        live, end, ended = self.leases.live, self.leases.end_one, []
        for lease_id in acked:
            lease = live(lease_id)
            if lease is not None and (lease.run is None or _leads_alone(lease.run, lease)):
                ended.append(end(lease))  # nearly all
            else:
                if ended:
                    self._acked(ended, effects)
                    ended = []
                self._judge(self._live(lease_id, effects), Plain.ACK, effects, now_ns=now_ns)
        if ended:
            self._acked(ended, effects)
        if nacked or released:
            self._settle_others(nacked, released, effects, expired=expired, now_ns=now_ns)
        return self._with_refills(effects)

    def _settle_others(
        self,
        nacked: Iterable[Nack],
        released: Iterable[LeaseId],
        effects: Effects,
        *,
        expired: int,
        now_ns: int,
    ) -> None:
        """Nacks, then releases; the first *expired* that went back did so by themselves."""
        for nack in nacked:
            self._judge(self._live(nack.lease_id, effects), nack, effects, now_ns=now_ns)
        given_back = {lease.lease_id for lease in effects.released[expired:]}  # the rest of runs
        for lease_id in released:
            if lease_id not in given_back:
                lease = self._live(lease_id, effects)
                given_back.update(self._judge(lease, Plain.RELEASE, effects, now_ns=now_ns))

    def settle_by_offset(
        self,
        *,
        success: Iterable[int],
        failed: Iterable[int],
        connection: int,
        open_connections: Container[int],
        now_ns: int,
    ) -> Effects:
        """Apply the verdicts of a client that knows no lease ids (DDMQ's own).

        An offset counts if it comes on the connection that holds its lease, or on one that never
        held it while all its leases went to one connection that is now closed: a client that
        reconnected. Anything else is fenced.
        """
        effects = self._on_time(now_ns)
        nack_of: dict[int, Nack | None] = {offset: Nack(LeaseId(0)) for offset in failed}
        nack_of.update(dict.fromkeys(success))  # success wins
        for offset, nack in nack_of.items():
            lease = self.leases.at(offset)
            if lease is None or not lease.may_be_settled_on(connection, open_connections):
                effects.fenced.append(offset)
            else:
                self._judge(lease, nack or Plain.ACK, effects, now_ns=now_ns)
        return self._with_refills(effects)

    def extend(self, lease_ids: Iterable[LeaseId], *, ms: int, now_ns: int) -> list[LeaseId]:
        """Let leases run *ms* from now, one visibility timeout at most; returns those not held.

        None is extended once trust has lapsed: the next owner waits for no lease that was granted
        later than that.
        """
        deadline_ns = now_ns + min(ms * MS, self.visibility_ns)
        if self.extensions_refused or now_ns >= self.trusted_until_ns:
            return list(lease_ids)
        return self.leases.extend_all(lease_ids, deadline_ns, now_ns=now_ns)

    def return_unsent(self, leases: Collection[Lease]) -> list[Lease]:
        """Their answer was never written: offer the jobs again, uncounted; returns the live."""
        is_live = self.leases.live
        live = [lease for lease in leases if is_live(lease.lease_id) is lease]
        for lease in live:
            if is_live(lease.lease_id) is lease:  # it did not go with the head of its run
                ended = self.leases.end(lease)
                if not lease.run:  # else it followed one that is alive
                    self._take_back(ended.pop(0).job)
                self._unfollow(ended)
        return live

    def dead_lettered(self, job: Job) -> Effects:
        """The copy of *job* is stored: finish it, and let its key go on (if not closed by now)."""
        effects = Effects()
        if self.closed:
            return effects
        self._dead_lettering.remove(job.offset)
        self._finish(job, Outcome.DEAD_LETTERED, effects)
        return self._with_refills(effects)

    # ---- time; caller: group lane ---------------------------------------------------------------

    def on_time(self, *, now_ns: int) -> Effects:
        """End the leases whose deadline has come; offer the jobs whose retry is due.

        An expired job is offered again at once, or given up if its hand-outs are used up. One whose
        answer was never written is offered uncounted; so are those of a run that its client had
        given back, though one ahead of them was open.
        """
        return self._with_refills(self._on_time(now_ns))

    def _on_time(self, now_ns: int) -> Effects:
        """The same, with what is to be read again left to whoever has more to do."""
        self._now.ns = now_ns
        effects = Effects()
        if self.leases.is_due(now_ns):
            for leases in self.leases.expired(now_ns):
                effects.expired += self._ended(leases, effects, now_ns=now_ns)
            for job, due_ns in self.leases.take_due(now_ns):
                self._offer(job, due_ns)
        if self._held_back.numbers:
            for _, offset in self._held_back.up_to(now_ns):
                self._held_back_no_more(offset)
        return effects

    def _held_back_no_more(self, offset: int) -> None:
        """No client of the owner before has the job there any more."""

    def revoke(self, lease_id: LeaseId, *, now_ns: int) -> Effects:
        """End a lease, and all of its run, as if its deadline had come: what its client says of it
        later is fenced. Nothing but ``fenced`` if it is not live.
        """
        effects = self._on_time(now_ns)
        if (lease := self._live(lease_id, effects)) is not None:
            leases = self.leases.end(lease.run[0] if lease.run else lease)
            effects.revoked += self._ended(leases, effects, now_ns=now_ns)
        return self._with_refills(effects)

    def _ended(self, leases: Sequence[Lease], effects: Effects, *, now_ns: int) -> list[Lease]:
        """*leases*, one behind the other in a run, ended without a verdict; returns those that
        count as hand-outs.
        """
        first, *behind = leases
        if first.unsent:
            effects.unsent += leases
            self._take_back(first.job)
            self._unfollow(behind)
            return []
        handled, unhandled = _at_expiry(behind)
        for lease in handled:
            self._failures.next_try_ns(lease.job, None, now_ns=now_ns)  # it counts
            self.jobs.chains.unfollow(lease.job)
        effects.released += unhandled
        self._unfollow(unhandled)
        self._failed(first.job, nack=None, now_ns=now_ns, effects=effects)
        return [first, *handled]

    def next_due_ns(self, now_ns: int) -> int | None:
        """When ``on_time`` has something to do, or a waiting take-over may begin to hand out."""
        due_ns = self.leases.next_due_ns()
        if self.hold_until_ns <= now_ns:
            return due_ns
        return self.hold_until_ns if due_ns is None else min(due_ns, self.hold_until_ns)

    def lease_times(self, now_ns: int) -> dict[int, int]:
        """By offset for how many ms from now clients may have what a hand-over leaves in their
        hands: leases of this period that are not extended any more, and of those before.
        """
        return self.leases.times_left_ms(now_ns, with_live=self.extensions_refused)

    # ---- inside ----------------------------------------------------------------------------------

    def _live(self, lease_id: LeaseId, effects: Effects) -> Lease | None:
        if (lease := self.leases.live(lease_id)) is None:
            effects.fenced.append(lease_id)
        return lease

    def _judge(
        self, lease: Lease | None, verdict: Plain | Nack, effects: Effects, *, now_ns: int
    ) -> list[LeaseId]:
        """Do what *verdict* decides; returns the leases that went back with it."""
        judged: list[Judged] = [] if lease is None else list(self.leases.judge(lease, verdict))
        for each in judged:
            if each.verdict is not Plain.RELEASE:
                self.measures.handler.note_since([each.lease.granted_ns], now_ns)
            if each.verdict is Plain.ACK:
                effects.acked.append(each.lease)
                self._finish(each.lease.job, Outcome.OK, effects)
                continue
            if each.verdict is Plain.RELEASE:
                effects.released.append(each.lease)
                self._take_back(each.lease.job)
            else:
                effects.nacked.append(each.lease)
                self._failed(each.lease.job, nack=each.verdict, now_ns=now_ns, effects=effects)
            effects.released += each.behind
            self._unfollow(each.behind)
        return [lease.lease_id for each in judged for lease in each.behind]

    def _take_back(self, job: Job) -> None:
        job.attempts -= 1  # handed back unhandled: it does not count
        self.leases.offer(job, self._now.ns)
        self._free(job)

    def _unfollow(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            lease.job.attempts -= 1
            self.jobs.chains.unfollow(lease.job)
            self._free(lease.job)

    def _withdraw(self, job: Job) -> None:
        """Hand *job*, which is running and of which no lease lives, out no more."""
        self.leases.withdraw(job)
        self.jobs.residency.down.somebody_may_have(job)
        if job.key is not None and self._set_aside.get(job.key) is job:
            del self._set_aside[job.key]


def _leads_alone(run: Sequence[Lease], lease: Lease) -> bool:
    """True if a verdict on *lease* decides nothing of the others in its *run*."""
    return run[0] is lease and (len(run) == 1 or run[1].verdict is None)


def _at_expiry(behind: Sequence[Lease]) -> tuple[list[Lease], list[Lease]]:
    """Of leases *behind* one that expired in its run: those that may have been handled, and those
    that go back by what their client said of them, or of one ahead of them.
    """
    for at, lease in enumerate(behind):
        if lease.verdict is Plain.RELEASE:
            return list(behind[:at]), list(behind[at:])
        if isinstance(lease.verdict, Nack):
            return list(behind[: at + 1]), list(behind[at + 1 :])
    return list(behind), []
