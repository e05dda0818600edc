"""Operator actions on single jobs of a queue: skip and retry. Pure.

Skipping finishes the first unfinished job of a key like an ack, although no client has it. Actions
refuse jobs that a client has, or may have.
"""

from __future__ import annotations

from proxy.core.jobs.chains import Job, JobState
from proxy.core.jobs.jobs import Jobs
from proxy.core.keys.order_key import key_text
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.leases.verdicts import Outcome, Skip
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.exhausted import OnExhausted
from proxy.core.pipeline.settlement import Settlement
from proxy.errors import WrongState


class OperatorActions:
    """Skips and retries jobs of one queue.

    Caller: the pipeline, for the operator's verbs. Affects: everything that settlement affects. A
    job between ``retry`` and ``offer_again`` is taken: other actions refuse it.
    """

    def __init__(
        self, jobs: Jobs, leases: LeaseBook, exhausted: OnExhausted, settlement: Settlement
    ) -> None:
        """Use the components of one pipeline."""
        self._jobs, self._leases, self._exhausted = jobs, leases, exhausted
        self._settlement = settlement
        self._taken: set[int] = set()  # offsets

    def head(self, key: bytes) -> Job | None:
        """Return the first unfinished job of *key*; None if it has none.

        Raise WrongState while its message is being read again.
        """
        job = self._jobs.by_key.head(key)
        if job is None and key in self._jobs.by_key:
            raise WrongState(
                f"the first message of key {key_text(key)!r} is being read again: try again"
                " in a moment"
            )
        return job

    def has_taken(self, job: Job) -> bool:
        """Return True for a job between ``retry`` and ``offer_again``."""
        return job.offset in self._taken

    def skip_stored(self, why: Skip, effects: Effects) -> None:
        """Finish the job of ``by_key.first_stored``, whose message is not in memory."""
        if why.key is not None and (offset := self._jobs.skip_stored(why.key)) is not None:
            self._leases.failures.forget(offset)
            effects.finished.append((offset, Outcome.SKIPPED))
            effects.skips[offset] = why

    def skip(self, job: Job, why: Skip) -> Effects:
        """Finish *job*, the ``head`` of its key, unhandled; its key continues without it. Raise
        WrongState if a client has it, or may have it.
        """
        self.check_free(job)
        self._jobs.chains.take_ready(job)
        self._settlement.withdraw(job)
        effects = Effects()
        effects.skips[job.offset] = why
        self._settlement.finish(job, Outcome.SKIPPED, effects)
        return effects

    def retry(self, job: Job, *, reset_attempts: bool) -> int:
        """Take *job*, the ``head`` of its key, out of its wait for a retry, for ``offer_again``.
        *reset_attempts*: reset the count of its deliveries. Return their former number.

        Raise WrongState if it does not wait for a retry, or a client has it.
        """
        self.check_free(job)
        if job.state is JobState.CHAINED:  # its wait may end before ``offer_again``
            raise WrongState(
                f"message {job.offset} of key {key_text(job.key)!r} waits for older messages while"
                " the order key changes: try again in a moment"
            )
        if not reset_attempts and self._leases.due_ns(job.offset) is None:
            raise WrongState(
                f"message {job.offset} of key {key_text(job.key)!r} does not wait for a retry: it"
                " is delivered as soon as possible"
            )
        before = job.attempts
        self._jobs.chains.take_ready(job)
        self._settlement.withdraw(job)
        self._taken.add(job.offset)
        if reset_attempts:
            self.count_attempts(job, 0)
        return before

    def count_attempts(self, job: Job, attempts: int) -> None:
        """Set the count of deliveries of *job*."""
        job.set_attempts(attempts)
        self._leases.failures.count(job.offset, attempts)

    def offer_again(self, job: Job) -> None:
        """Make *job*, which ``retry`` took, available to clients."""
        self._taken.discard(job.offset)
        if job.state is JobState.RUNNING:
            self._settlement.offer(job)

    def check_free(self, job: Job) -> None:
        """Raise WrongState if a client has or may have *job*, or it is being dead-lettered."""
        what = f"message {job.offset} of key {key_text(job.key)!r}"
        if (lease := self._leases.at(job.offset)) is not None:
            client = lease.holder.client or f"connection {lease.holder.connection}"
            raise WrongState(
                f"{what} is leased to client {client} (lease {lease.lease_id}): wait for its"
                " verdict, or revoke the lease first"
            )
        if job.offset in self._leases.held_back.numbers:
            raise WrongState(
                f"{what} may be held by a client of the previous owner: try again in a moment"
            )
        if job.offset in self._exhausted.under_way:
            raise WrongState(f"{what} is being written to the dead letters")
        if job.offset in self._taken:
            raise WrongState(f"{what} is being retried by another operator: try again in a moment")
