"""From copies in a parked twin to jobs: selection of valid copies, and their keys. Pure.

The next owner may copy a message again. Original offsets rise among the copies of a key, so a copy
whose offset does not rise is a repeat and skipped.
"""

from __future__ import annotations

from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.copies import as_sent
from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.parking.parked_copy import is_of_its_life, origin_of, parked_chain
from proxy.core.parking.redrives import Redrives
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.exhausted import OnExhausted
from proxy.core.pipeline.intake import Intake
from proxy.core.pipeline.key_switch import KeySwitch
from proxy.core.pipeline.operator_actions import OperatorActions
from proxy.core.pipeline.pauses import Pauses
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.pipeline.settlement import Settlement


class CopyIntake(Intake):
    """Admits copies as their original messages, while their keys are parked.

    Caller: the twin's pipeline. Affects: jobs, and the progress of each parked key in ``Redrives``.
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
        *,
        origin: QueuePipeline,
    ) -> None:
        """Use the components of the twin; *origin* is the queue whose messages are parked."""
        super().__init__(rules, jobs, leases, keys, pauses, exhausted, settlement, operator)
        assert isinstance(exhausted, Redrives)
        self._redrives, self._origin = exhausted, origin

    def room(self, *, ready: int, demand: bool) -> int:
        """Return the room: reading pauses only if memory is full; copies cost an offset each."""
        return self._residency.room(demand=True)

    def job(self, message: StoredMessage, key: bytes | None) -> Job:
        """Return a new job for the original message of a copy."""
        return super().job(as_sent(message), key)

    def origin_offset(self, _job: Job, message: StoredMessage) -> int:
        """Return the offset of the original message of a copy."""
        return origin_of(message)[0]

    def _admit(self, message: StoredMessage, effects: Effects) -> None:
        """Add a valid copy to the chain of its key."""
        key = self._key_of(message)
        origin, epoch = origin_of(message)
        parked = None if key is None else self._origin.parked.get(key)
        if (
            key is None
            or parked is None
            or epoch < parked.epoch
            or not is_of_its_life(message, self._origin)
            or not self._redrives.note_copy(key, parked, origin=origin)
        ):
            self._jobs.pass_over(message.queue_offset)
        elif not self._residency.spill(key, message.queue_offset):
            self._jobs.admit(self.job(message, key))

    def _key_of(self, message: StoredMessage) -> bytes | None:
        """Return the key under which it was parked: by the rule of the original message."""
        return parked_chain(message, self._origin.keys.record.rule_at(origin_of(message)[0]))
