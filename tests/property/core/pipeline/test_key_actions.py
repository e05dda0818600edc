"""Random pauses, resumes, skips and retries of keys, over several owners."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.jobs.chains import Job
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack, Skip
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.errors import WrongState
from testkit.messages import keyed
from testkit.pipelines import MS, lease, pipeline, rules

KEYS = ("a", "b", "c")
RULES = rules(
    retry=RetryPolicy((20,), 16, OnExhausted.BLOCK), visibility_ns=50 * MS, max_jobs_per_key=64
)
HOW = PausedKey(1)

acts = st.one_of(
    st.tuples(st.just("pause"), st.sampled_from([*KEYS, EVERYTHING])),
    st.tuples(st.just("resume"), st.sampled_from([*KEYS, EVERYTHING])),
    st.tuples(st.sampled_from(["skip", "retry", "reset"]), st.sampled_from(KEYS)),
    st.tuples(st.sampled_from(["pull", "pull", "ack", "nack", "release"]), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.sampled_from(["recorded", "crash"]), st.none()),
)


class Model:
    """A queue of 24 messages, with a list of unfinished ones for each key."""

    def __init__(self) -> None:
        self.log = [keyed(offset, KEYS[offset * offset % 3]) for offset in range(24)]
        self.left = {key: [m.queue_offset for m in self.log if m.key == key] for key in KEYS}
        self.paused: set[str | None] = set()
        self.now_ns = 0
        self.epoch = 1
        self.leases: list[Any] = []
        self.hastened: list[Job] = []  # until a record says so
        self.queue: QueuePipeline = pipeline(RULES, messages=self.log)

    def do(self, what: str, about: Any) -> None:
        key = about.encode() if isinstance(about, str) else EVERYTHING
        match what:
            case "pause":
                assert self.queue.pause(key, HOW) is (about not in self.paused)
                self.paused.add(about)
            case "resume":
                assert (self.queue.resume(key) is not None) is (about in self.paused)
                self.queue.resumed(key)
                self.paused.discard(about)
            case "skip" | "retry" | "reset":
                self.act(what, about)
            case "wait":
                self.now_ns += about * MS
                self.queue.on_time(now_ns=self.now_ns)
            case "recorded":
                for job in self.hastened:
                    self.queue.offer_again(job)
                self.hastened.clear()
            case "crash":
                self.epoch += 1
                self.leases.clear()
                self.hastened.clear()
                self.queue = pipeline(
                    RULES, epoch=self.epoch, resume=self.queue.snapshot(), messages=self.log
                )
            case "pull":
                self.pull(about)
            case _:
                self.judge(what, about)

    def act(self, what: str, key: str) -> None:
        job = self.queue.head(key.encode())
        assert (None if job is None else job.offset) == next(iter(self.left[key]), None)
        if job is None:
            return
        out = any(each.job is job for each in self.live()) or job in self.hastened
        try:
            if what == "skip":
                self.queue.skip(job, Skip("audit", key.encode()))
                self.left[key].pop(0)
            else:
                self.queue.retry(job, reset_attempts=what == "reset")
                self.hastened.append(job)
        except WrongState:
            assert out or what == "retry"
        else:
            assert not out

    def live(self) -> list[Any]:
        return [each for each in self.leases if self.queue.leases.live(each.lease_id) is each]

    def pull(self, jobs: int) -> None:
        self.queue.on_time(now_ns=self.now_ns)
        for each in lease(self.queue, jobs, now_ns=self.now_ns):
            key = each.job.key.decode()  # type: ignore[union-attr]
            assert not self.paused & {key, EVERYTHING}
            assert each.job.offset == self.left[key][0], "the first that is unfinished"
            assert all(other.job is not each.job for other in self.live()), "leased once"
            self.leases.append(each)

    def judge(self, verdict: str, which: int) -> None:
        self.queue.on_time(now_ns=self.now_ns)
        live = self.live()
        if not live:
            return
        each = live[which % len(live)]
        ids = [each.lease_id]
        match verdict:
            case "ack":
                self.queue.settle(acked=ids, now_ns=self.now_ns)
                self.left[each.job.key.decode()].remove(each.job.offset)
            case "nack":
                self.queue.settle(nacked=[Nack(each.lease_id)], now_ns=self.now_ns)
            case _:
                self.queue.settle(released=ids, now_ns=self.now_ns)

    def finish(self) -> None:
        """Resume and handle everything: nothing may be left."""
        for about in list(self.paused):
            self.do("resume", about)
        self.do("recorded", None)
        for _ in range(200):
            self.do("wait", 60)
            self.do("pull", 4)
            for _ in self.live():
                self.do("ack", 0)


@settings(deadline=None)
@given(st.lists(acts, max_size=40))
def test_order_holds_whatever_is_done_to_keys_and_nothing_is_left(done: list[Any]) -> None:
    model = Model()
    for what, about in done:
        model.do(what, about)
        unfinished = [offset for left in model.left.values() for offset in left]
        assert model.queue.committable == min(unfinished, default=24)
    model.finish()
    assert not any(model.left.values())
    assert model.queue.committable == 24
