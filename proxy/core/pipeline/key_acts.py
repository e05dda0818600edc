"""What a person does to one key, or to all of a queue: pause, resume, skip, retry. Pure.

A paused key is not handed out: its first job, once its turn comes, is set aside until the key is
resumed, and all others of it wait behind as ever. What clients have of it they may finish. So order
is nobody's concern here: which job of a key is next stays a matter of its chain.

Skipping finishes the first unfinished job of a key, as an ack would, but for nobody has it.
"""

from __future__ import annotations

from proxy.core.jobs.chains import Job, JobState
from proxy.core.keys.order_key import key_text
from proxy.core.leases.verdicts import Outcome, Skip
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.hand_outs import HandOuts
from proxy.core.records.paused_key import PausedKey
from proxy.errors import WrongState


class KeyActs(HandOuts):
    """Acts on the jobs of one queue. All times are ns."""

    # ---- pausing; caller: key desk --------------------------------------------------------------

    def pause(self, key: bytes | None, how: PausedKey) -> bool:
        """Hand out nothing of *key* (or ``EVERYTHING``) from now on, whether it has jobs or not;
        False if it is paused.
        """
        if key in self.paused:
            return False
        self.paused[key] = how
        return True

    def resume(self, key: bytes | None) -> PausedKey | None:
        """Pause *key* no longer; ``resumed`` says so to its jobs. None if it was not paused."""
        how: PausedKey | None = self.paused.pop(key, None)
        return how

    def resumed(self, key: bytes | None) -> Effects:
        """Offer what was set aside of *key* again, if it is not paused any more."""
        if key is not None and key not in self.paused:
            job = self._set_aside.pop(key, None)
            if job is not None and job.state is JobState.RUNNING:
                self._offer(job)
        return self._with_refills(Effects())

    # ---- skipping and retrying; caller: key desk ------------------------------------------------

    def first_stored(self, key: bytes) -> int | None:
        """Offset of the first unfinished job of *key* if nothing of it is in memory, nor being read
        again: so it is with parked copies. None otherwise.
        """
        return self.jobs.by_key.first_stored(key)

    def skip_stored(self, why: Skip) -> Effects:
        """Finish that job, which nobody has read since."""
        effects = Effects()
        if (offset := self.jobs.skip_stored(why.key)) is not None:
            self._failures.forget(offset)
            effects.finished.append((offset, Outcome.SKIPPED))
            effects.skips[offset] = why
        return self._with_refills(effects)

    def head(self, key: bytes) -> Job | None:
        """The first unfinished job of *key*; None if it has none.

        Raises WrongState while its message is being read again.
        """
        job = self.jobs.by_key.head(key)
        if job is None and key in self.jobs.by_key:
            raise WrongState(
                f"the first message of key {key_text(key)!r} is being read again: ask once more"
            )
        return job

    def skip(self, job: Job, why: Skip) -> Effects:
        """Finish *job*, the ``head`` of its key, which nobody handled: its key goes on without it.

        Raises WrongState if a client has it, or may have it.
        """
        self.in_nobodys_hands(job)
        self.jobs.chains.take_ready(job)
        self._withdraw(job)
        effects = Effects(skips={job.offset: why})
        self._finish(job, Outcome.SKIPPED, effects)
        return self._with_refills(effects)

    def retry(self, job: Job, *, anew: bool) -> int:
        """Take *job*, the ``head`` of its key, out of its wait for a retry, for ``offer_again``;
        *anew*: its hand-outs so far count no longer. Returns how many there were.

        Raises WrongState if there is nothing to hasten, or a client has it.
        """
        self.in_nobodys_hands(job)
        if job.state is JobState.CHAINED:  # what it waits for may end before ``offer_again``
            raise WrongState(
                f"message {job.offset} of key {key_text(job.key)!r} waits for older messages while"
                " the order key changes: ask again in a moment"
            )
        if not anew and self.leases.due_ns(job.offset) is None:
            raise WrongState(
                f"message {job.offset} of key {key_text(job.key)!r} waits for no retry: it is"
                " handed out as soon as a client may have it"
            )
        before = job.attempts
        self.jobs.chains.take_ready(job)
        self._withdraw(job)
        self._hastened.add(job.offset)
        if anew:
            self.count_attempts(job, 0)
        return before

    def count_attempts(self, job: Job, attempts: int) -> None:
        """So many hand-outs of *job* count."""
        job.attempts = attempts
        self._failures.count(job.offset, attempts)

    def offer_again(self, job: Job) -> Effects:
        """*job*, which ``retry`` took, may be had now."""
        self._hastened.discard(job.offset)
        if not self.closed and job.state is JobState.RUNNING:
            self._offer(job)
        return self._with_refills(Effects())

    def in_nobodys_hands(self, job: Job) -> None:
        """Raises WrongState if a client has *job*, or may have it, or it is being dead-lettered."""
        what = f"message {job.offset} of key {key_text(job.key)!r}"
        if (lease := self.leases.at(job.offset)) is not None:
            client = lease.holder.client or f"connection {lease.holder.connection}"
            raise WrongState(
                f"{what} is leased to client {client} (lease {lease.lease_id}): wait for its"
                " verdict, or revoke the lease first"
            )
        if job.offset in self._held_back.numbers:
            raise WrongState(
                f"{what} may be in the hands of a client of the owner before: ask again in a moment"
            )
        if self.is_dead_lettering(job):
            raise WrongState(f"{what} is on its way to the dead letters")
        if job.offset in self._hastened:
            raise WrongState(f"{what} is being retried by somebody: ask again in a moment")

    # ---- looking; caller: key views -------------------------------------------------------------

    @property
    def unordered_ready(self) -> int:
        """How many of the ``ready`` jobs have no key. O(ready)."""
        ready = (self.leases.offered, self.jobs.chains.ready_jobs())
        return sum(job.key is None for jobs in ready for job in jobs)

    def is_dead_lettering(self, job: Job) -> bool:
        """True while its copy is being stored."""
        return job.offset in self._dead_lettering
