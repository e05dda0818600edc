"""Order and outcomes of messages with actions, checked against the outcomes allowed for each kind,
under any clients, times, crashes and sizes of pulls.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.group.group_buffer import GroupBuffer, PullWish
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Snapshot
from proxy.lane.topic_rules import rules_of
from proxy.settings.groups import TopicSettings
from testkit.messages import message
from testkit.pipelines import HOLDER, MS, Budgets, pipeline
from tests.support.examples import examples

MAX_DELIVERIES = 3
RULES = rules_of(
    TopicSettings.model_validate(
        {
            "name": "orders",
            "order_key": "KEY",
            "max_deliveries": MAX_DELIVERIES,
            "retry_intervals_ms": [5, 10],
            "visibility_timeout_s": 0.02,
            "on_exhausted": "dead_letter",
            "max_jobs_in_memory": 20,
            "max_jobs_per_key_in_memory": 2,
            "actions": [
                {"filter": {"where": "body.kind != 'dropped'"}},
                {"transform": {"to": "body.kind != 'broken' && to_string(body.n) || `null`"}},
            ],
        }
    )
)
#: Allowed outcomes of each kind.
ENDS = {
    "wanted": {Outcome.OK, Outcome.DEAD_LETTERED},  # its clients may fail, too
    "dropped": {Outcome.FILTERED},
    "broken": {Outcome.DEAD_LETTERED},
}
KINDS = st.sampled_from(["wanted", "wanted", *ENDS])
MOVES = st.tuples(
    st.sampled_from(["pull", "pull", "pull", "ack", "ack", "nack", "release", "time", "crash"]),
    st.integers(1, 12),
)


@dataclass
class Site:
    """A queue, its present owner and a client with perfect memory."""

    log: list[tuple[str | None, str]]  # key, kind
    now_ns: int = 1
    budgets: Budgets = field(default_factory=Budgets)
    ends: dict[int, Outcome] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    leases: list[Lease] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begin(None)

    def begin(self, resume: Snapshot | None) -> None:
        """Begin a new owner, which resumes from the records."""
        self.leases.clear()
        self.pipeline: QueuePipeline = pipeline(RULES, resume=resume, budgets=self.budgets)
        self.buffer = GroupBuffer(self.budgets.leases)
        self.buffer.add(self.pipeline)
        self.read()

    def read(self) -> None:
        """Read as much as there is room for."""
        at = self.pipeline.position
        until = min(len(self.log), at + self.pipeline.room(demand=True))
        if until > at:
            some = [self.stored(offset) for offset in range(at, until)]
            self.saw(self.pipeline.on_messages(some, next_offset=until))

    def stored(self, offset: int) -> Any:
        key, kind = self.log[offset]
        return message(offset, body=orjson.dumps({"n": offset, "kind": kind}), key=key)

    def move(self, what: str, number: int) -> None:
        """Execute one of ``MOVES``."""
        some, rest = self.leases[:number], self.leases[number:]
        names = [each.lease_id for each in some]
        if what == "pull":
            self.pull(number)
        elif what == "time":
            self.now_ns += number * MS
            self.saw(self.pipeline.on_time(now_ns=self.now_ns))
        elif what == "crash":
            snapshot = self.pipeline.snapshot(now_ns=self.now_ns)
            self.pipeline.close()
            self.begin(snapshot)
        else:
            self.leases = rest
            verdicts: dict[str, Any] = {
                "ack": {"acked": names},
                "nack": {"nacked": [Nack(each) for each in names]},
                "release": {"released": names},
            }[what]
            self.saw(self.pipeline.settle(**verdicts, now_ns=self.now_ns))
        self.read()

    def pull(self, number: int) -> None:
        """Lease messages for a client, which accepts runs if *number* is even."""
        self.saw(self.pipeline.on_time(now_ns=self.now_ns))
        wish = PullWish(HOLDER, None, number, 1 << 30, max_run=1 + 3 * (number % 2))
        batches = self.buffer.lease(wish, now_ns=self.now_ns)
        for of, effects in self.buffer.take_unreported():
            assert of is self.pipeline
            assert effects.failed_actions or effects.finished or effects.dead_letters
            self.saw(effects)
        for lease in (lease for batch in batches for lease in batch.leases):
            self.handed_out(lease)
            self.leases.append(lease)

    def handed_out(self, lease: Lease) -> None:
        offset = lease.job.offset
        key, kind = self.log[offset]
        assert kind == "wanted"
        assert lease.body == b"%d" % offset, "the body that was made"
        assert offset not in self.ends
        if key is not None:
            self.in_order(offset, key, ahead=lease.run or ())

    def in_order(self, offset: int, key: str, *, ahead: Any = ()) -> None:
        """Return True if all earlier jobs of its key are finished, or ahead of it in its run."""
        together = {each.job.offset for each in ahead}
        for other in range(offset):
            if self.log[other][0] == key:
                assert other in self.ends or other in together, "O2"

    def saw(self, effects: Effects) -> None:
        """Check that finished messages stay finished; dead letters are stored at once."""
        for offset, outcome in effects.finished:
            assert offset not in self.ends
            assert outcome in ENDS[self.log[offset][1]]
            assert (offset in effects.filtered_by) is (outcome is Outcome.FILTERED)
            self.ends[offset] = outcome
        for failed in effects.failed_actions:
            key, kind = self.log[failed.offset]
            assert kind == "broken"
            assert failed.attempt == self.attempts[failed.offset] + 1 <= MAX_DELIVERIES
            self.attempts[failed.offset] = failed.attempt
            if key is not None:
                self.in_order(failed.offset, key)
        for refill in effects.refills:
            self.saw(self.pipeline.refilled(refill, map(self.stored, refill.offsets)))
        for job in effects.dead_letters:
            if self.log[job.offset][1] == "broken":
                assert self.attempts[job.offset] == MAX_DELIVERIES
            self.saw(self.pipeline.dead_lettered(job))
        self.buffer.refresh(self.pipeline)

    def drain(self) -> None:
        """Let clients handle everything that is left."""
        for _ in range(20 * len(self.log) + 20):
            if len(self.ends) == len(self.log):
                return
            self.move("ack", len(self.leases))
            self.move("time", 10)
            self.move("pull", 9)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "a", "b", "c"]), KINDS), max_size=40),
    st.lists(MOVES, max_size=40),
)
def test_each_message_has_the_end_of_its_kind_and_each_key_its_order(
    log: list[tuple[str | None, str]], moves: list[tuple[str, int]]
) -> None:
    site = Site(log)
    for what, number in moves:
        site.move(what, number)
        assert site.pipeline.committable <= min(
            (n for n in range(len(log)) if n not in site.ends), default=len(log)
        )
    site.drain()
    assert site.ends.keys() == set(range(len(log))), "nothing is lost, nothing is stuck"
    assert site.pipeline.committable == len(log)
    assert (site.budgets.memory.used, site.budgets.leases.used) == (0, 0)
