"""From messages to jobs: order keys, chains, spilling and refills. Pure.

``dispatch`` delivers the jobs; ``residency`` decides which of them stay in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.chains import NEW, READY, RUNNING, Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.refills import Refill
from proxy.core.keys.order_key import QUEUE_CHAIN, WHY_MISSING, MissingKey
from proxy.core.keys.topic_rules import SHADOW_MARK, TopicRules
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.leases.verdicts import Filtered, Outcome, Skip
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.exhausted import OnExhausted
from proxy.core.pipeline.key_switch import KeySwitch
from proxy.core.pipeline.operator_actions import OperatorActions
from proxy.core.pipeline.pauses import Pauses
from proxy.core.pipeline.settlement import Settlement
from proxy.core.records.paused_key import EVERYTHING

#: With this many ready jobs, reading pauses until few are left: messages read long before their
#: delivery use memory and have left the processor's caches.
_PLENTY, _ENOUGH = 2048, 1024
#: Memory used by a message besides its body, properties and order key: the objects around it.
BESIDE_BYTES = 640


class Intake:
    """Makes jobs of the messages of one queue, and limits reading.

    Caller: the pipeline, while its queue is read. Affects: jobs, and (``exhausted``) messages
    without an order key; through deleted messages also everything that settlement affects.
    """

    def __init__(
        self,
        rules: TopicRules,
        jobs: Jobs,
        leases: LeaseBook,
        keys: KeySwitch,
        pauses: Pauses,
        exhausted: OnExhausted,
        settlement: Settlement,
        operator: OperatorActions,
    ) -> None:
        """Use the components of one pipeline."""
        self._rules, self._jobs, self._leases, self._keys = rules, jobs, leases, keys
        self._exhausted, self._settlement, self._operator = exhausted, settlement, operator
        self._paused, self._attempts = pauses.keys, leases.attempts
        self._residency = jobs.residency
        self._rule_of = keys.rule_of
        self._plenty = False  # ready jobs, for a while

    def change_rules(self, rules: TopicRules) -> None:
        """Apply *rules* from the next message on."""
        self._rules = rules

    # ---- room -----------------------------------------------------------------------------------

    def room(self, *, ready: int, demand: bool) -> int:
        """Return how many more messages may be read while *ready* jobs wait; 0 pauses reading.

        *demand*: clients wait, so reading continues past jobs that cannot be delivered now. What an
        earlier owner had in memory is read in any case: nothing is refilled before, neither for
        clients nor for operators, and the messages that it spilled may fill the window.
        """
        self._plenty = ready >= _PLENTY or (self._plenty and ready > _ENOUGH)
        if self._plenty:
            return 0
        if EVERYTHING in self._paused or not self._has_many_keys:
            demand = False  # waiting clients would not get more
        return self._residency.room(demand=demand or self._jobs.resumes, idle=self._idle)

    @property
    def offers(self) -> bool:
        """True if a job is ready, even if the whole queue is paused."""
        return bool(self._jobs.chains.ready or self._leases.offered)

    @property
    def paused_by(self) -> str:
        """Reason why reading is paused even with demand: ``memory``, ``jobs``; "" if it is not."""
        window = self._jobs.window
        if window.short_of_memory:
            return "memory"
        # With demand the whole window is filled, except with a single key, where that does not
        # help.
        reads_past = self._has_many_keys or self._jobs.resumes
        is_full = self._residency.left <= 0 if reads_past else window.full
        return "jobs" if is_full else ""

    @property
    def _idle(self) -> bool:
        """True if nothing is ready and nothing is being read again."""
        return not (self.offers or self._residency.being_read)

    @property
    def _has_many_keys(self) -> bool:
        return self._keys.record.rule.order_key.has_many_keys

    # ---- reading --------------------------------------------------------------------------------

    def read(self, messages: Collection[StoredMessage], *, next_offset: int) -> Effects:
        """Admit *messages*; the next read starts at *next_offset*, or earlier: at the first message
        for which the window or memory has no room. Messages read before are skipped.
        """
        effects = Effects()
        jobs, residency, rules = self._jobs, self._residency, self._rules
        residency.look_at_memory()
        left_over: Iterable[StoredMessage] = messages
        if len(messages) > 1:  # a single one would gain nothing
            left_over = self._admit_together(iter(messages))
        position, resumes = jobs.position, jobs.resumes
        memory, left = jobs.window.memory, residency.left
        limit, admit = memory.limit, self._admit
        for message in left_over:
            offset = message.queue_offset
            if offset < position:
                continue
            if left <= 0 and (left := residency.left) <= 0:  # jobs may have been spilled
                next_offset = offset
                break
            left -= 1
            position = offset + 1
            if resumes and jobs.knows(offset):
                jobs.pass_over(offset)
            elif (
                rules.tags is not None
                or message.raw_properties.find(SHADOW_MARK) >= 0  # rare; "in" is slower
            ) and (rule := rules.unwanted(message)) is not None:
                jobs.pass_over(offset)
                effects.filtered_by[offset] = Filtered(rule, offset)
                effects.finished.append((offset, Outcome.FILTERED))
            elif memory.used >= limit and not self._has_place(message):
                next_offset = offset
                break
            else:
                admit(message, effects)
        jobs.advance(next_offset)
        if resumes:
            self._resumed()
        return effects

    def _resumed(self) -> None:
        """Note that more of what an earlier owner had was read, perhaps all.

        Its messages that ended before they were jobs here, since tags filter them now, or because
        they were deleted or are damaged, have no deliveries any more.
        """
        if not self._jobs.resumes:
            self._leases.offer_fewest_deliveries_first()
            self._leases.failures.forget_others(self._jobs.all_read())

    def _admit_together(self, messages: Iterator[StoredMessage]) -> Iterable[StoredMessage]:
        """Admit, all at once, the first of *messages* that surely become jobs in memory; return
        those from the first one on that needs a closer look, usually none.

        Until that one, no job changes the answers to what ``read`` asks before each message.
        """
        jobs, record = self._jobs, self._keys.record
        if (
            (most := self._residency.places) <= 0
            or self._rules.tags is not None
            or record.before is not None
            or jobs.change is not None
            or jobs.resumes
        ):
            return messages
        free_bytes, position = jobs.window.memory.left, jobs.position
        key_of, is_keyed = record.rule.order_key.of, record.rule.text is not None
        together: list[Job] = []
        left_over: Iterable[StoredMessage] = ()
        job_of, add = self.job, together.append
        for message in messages:
            offset = message.queue_offset
            if (
                len(together) == most
                or free_bytes <= 0
                or offset < position
                or message.raw_properties.find(SHADOW_MARK) >= 0
                or ((key := key_of(message)) is None and is_keyed)
            ):
                left_over = chain((message,), messages)
                break
            job = job_of(message, key)
            add(job)
            free_bytes -= job.held_bytes
            position = offset + 1
        if together:
            jobs.admit_all(together)
        return left_over

    def _has_place(self, message: StoredMessage) -> bool:
        """Return True if *message* may be admitted while memory is full."""
        return self._residency.has_place(self._key_of(message), idle=self._idle)

    def _key_of(self, message: StoredMessage) -> bytes | None:
        """Return the chain of *message*; None if it has none."""
        return self._rule_of(message).chain_of(message)

    def _admit(self, message: StoredMessage, effects: Effects) -> None:
        """Add *message* to the chain of its key, in memory or spilled."""
        record = self._keys.record  # as KeySwitch.rule_of, which every message would call
        rule = record.rule if record.before is None else record.rule_at(message.queue_offset)
        key = rule.order_key.of(message)
        jobs = self._jobs
        if jobs.change is not None:
            jobs.change.read(message)
        if key is None and rule.text is not None:
            effects.note_missing_key()
            if rule.missing is MissingKey.DEAD_LETTER:
                why = WHY_MISSING.get(rule.order_key.look(message)[1], "")
                self._give_up(message, f"no order key at {rule.text}{why}", effects)
                return
            if rule.missing is MissingKey.BY_QUEUE:
                key = QUEUE_CHAIN
        if not self._residency.spill(key, message.queue_offset):
            job = self.job(message, key)
            jobs.admit(job)
            if job.attempts and job.state is READY:  # it failed at an earlier owner
                jobs.chains.take_ready(job)
                self._settlement.offer(job, job.since_ns)

    def _give_up(self, message: StoredMessage, reason: str, effects: Effects) -> None:
        """Give up *message*, which never becomes ready."""
        job = self.job(message, None)
        self._jobs.hold(job)
        job.move(NEW, RUNNING)
        job.note_reason(reason)
        self._exhausted.give_up(job, effects)

    def job(self, message: StoredMessage, key: bytes | None) -> Job:
        """Return a new job for *message*, with the attempts counted by earlier owners."""
        offset, body_bytes = message.queue_offset, len(message.body)
        held_bytes = BESIDE_BYTES + body_bytes + len(message.raw_properties)
        if key is not None:
            held_bytes += len(key)
        job = Job(offset, key, message, body_bytes, held_bytes)
        if self._attempts:
            job.attempts = self._attempts.get(offset, 0)
        return job

    def origin_offset(self, job: Job, _message: StoredMessage) -> int:
        """Return the offset of the original message, even for a parked copy."""
        return job.offset

    # ---- refills --------------------------------------------------------------------------------

    def pass_damage(self, until: int, *, audit: str) -> Effects:
        """Skip the messages from the read position to below *until*, which cannot be read."""
        effects, jobs = Effects(), self._jobs
        resumes = jobs.resumes
        for offset in range(jobs.position, until):
            if not jobs.knows(offset):
                effects.finished.append((offset, Outcome.SKIPPED))
                effects.skips[offset] = Skip(audit, None)
            jobs.pass_over(offset)
        jobs.advance(until)
        if resumes:
            self._resumed()
        return effects

    def refilled(
        self, refill: Refill, messages: Iterable[StoredMessage], *, skip: Skip | None = None
    ) -> Effects:
        """Admit spilled messages that were read again; deleted ones are finished, and with *skip*
        those that are missing in *messages* because they cannot be read.
        """
        if refill.unloaded:
            return self._came_back(refill.offsets[0], next(iter(messages), None), skip=skip)
        effects = Effects()
        jobs = {}
        for message in messages:  # all have a key: others were handled when first read
            jobs[message.queue_offset] = self.job(message, refill.key)
            if self._jobs.change is not None:
                self._jobs.change.read_again(message)
        here = [jobs[each] for each in refill.offsets if each in jobs]
        if self._jobs.refilled(refill, here):
            for offset in refill.offsets:
                if offset not in jobs:
                    self._leases.failures.forget(offset)
                    _gone(offset, refill.key, effects, skip=skip)
        return effects

    def _came_back(
        self, offset: int, message: StoredMessage | None, *, skip: Skip | None
    ) -> Effects:
        """Handle the message of an unloaded job that was read again, or (None) is gone."""
        effects = Effects()
        as_read = None if message is None else self.job(message, None)
        job = self._residency.came_back(offset, as_read)
        if job is not None and message is None:
            self._jobs.chains.take_ready(job)
            self._settlement.withdraw(job)
            self._settlement.finish(
                job, Outcome.DELETED if skip is None else Outcome.SKIPPED, effects
            )
            if skip is not None:
                effects.skips[offset] = skip
            elif job.key is not None:
                effects.gone[offset] = job.key
        elif job is not None and message is not None:
            if self._jobs.change is not None:
                self._jobs.change.read_again(message)
            self._settlement.is_back(job, is_taken=self._operator.has_taken(job))
        return effects


def _gone(offset: int, key: bytes, effects: Effects, *, skip: Skip | None) -> None:
    if skip is None:
        effects.finished.append((offset, Outcome.DELETED))
        effects.gone[offset] = key
    else:
        effects.finished.append((offset, Outcome.SKIPPED))
        effects.skips[offset] = skip
