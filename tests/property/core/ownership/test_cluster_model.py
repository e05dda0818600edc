"""Two proxies under stops, cuts, kills and restarts: no key is ever leased twice at a time.

A lease is live by the clock alone: leases of a stopped, disconnected or killed proxy live until
their deadline, because their clients may still be working.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.property.core.ownership.cluster import DRAIN_NS, EXPIRY_NS, SECOND, TRUST_NS, Cluster
from tests.support.examples import examples

PROXIES = st.integers(0, 1)
VERDICTS = st.sampled_from(["ack", "ack", "ack", "nack", "reject", "release"])


@settings(
    max_examples=examples(50), stateful_step_count=50, deadline=None, report_multiple_bugs=False
)
class ClusterMachine(RuleBasedStateMachine):
    """The judge makes the checks (``tests/property/core/ownership/cluster.py``)."""

    @initialize(visibility_s=st.sampled_from([1, 5, 12, 30]), forgets=st.booleans())
    def start(self, visibility_s: int, forgets: bool) -> None:
        self.cluster = Cluster(visibility_ns=visibility_s * SECOND, forgets_locks=forgets)
        self.cluster.produce(*"aabacab")
        self.cluster.run(2000)

    @rule(keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=5))
    def produce(self, keys: list[str]) -> None:
        self.cluster.produce(*keys)

    @rule(ms=st.sampled_from([500, 1000, 2500, 6000, 11000]), jobs=st.sampled_from([0, 1, 2, 3, 3]),
          how=st.lists(VERDICTS, max_size=6))  # fmt: skip
    def work(self, ms: int, jobs: int, how: list[str]) -> None:
        """Clients of all proxies settle some leases, and pull when possible."""
        cluster = self.cluster
        for _ in range(0, ms, 500):
            cluster.run(500)
            for each in cluster.proxies:
                each.pull(jobs, now_ns=cluster.now_ns)
        for each in cluster.proxies:
            each.settle(how, now_ns=cluster.now_ns)
            each.pull(jobs, now_ns=cluster.now_ns)

    work_more = work  # the most frequent action
    work_again = work

    @rule(which=PROXIES, what=st.sampled_from(["stop", "cut", "slow"]))
    def trouble(self, which: int, what: str) -> None:
        """Start or end trouble: the process stops, loses its broker, or gets late answers."""
        self.cluster.proxies[which].toggle(what)

    @rule(which=PROXIES)
    def heal(self, which: int) -> None:
        self.cluster.proxies[which].heal()

    @rule(which=PROXIES)
    def kill(self, which: int) -> None:
        self.cluster.proxies[which].kill()

    @rule(which=PROXIES)
    def move(self, which: int) -> None:
        self.cluster.want(which)

    @rule()
    def both_want_it(self) -> None:
        """Two proxies see different members."""
        for each in self.cluster.proxies:
            each.want()

    @rule()
    def restart_broker(self) -> None:
        self.cluster.broker.restart(self.cluster.now_ns)

    @rule(which=PROXIES)
    def commit(self, which: int) -> None:
        self.cluster.proxies[which].commit(now_ns=self.cluster.now_ns)

    @rule(which=PROXIES)
    def extend(self, which: int) -> None:
        self.cluster.proxies[which].extend(now_ns=self.cluster.now_ns)

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.finish()


TestCluster = ClusterMachine.TestCase


# ---- scenarios, one for each kind of end --------------------------------------------------------


def served(*, visibility_s: int = 5, forgets_locks: bool = False, keys: str = "aab") -> Cluster:
    """Return a cluster in which the left proxy owns the queue and leased one job of each key."""
    cluster = Cluster(visibility_ns=visibility_s * SECOND, forgets_locks=forgets_locks)
    cluster.produce(*keys)
    cluster.run(2500)
    assert cluster.proxies[0].pull(10, now_ns=cluster.now_ns)
    return cluster


def first_hand_out(cluster: Cluster, which: int, *, within_s: int) -> float:
    """Return the seconds until that proxy delivers a message."""
    start_ns = cluster.now_ns
    for _ in range(within_s * 10):
        cluster.run(100, step_ms=100)
        if cluster.proxies[which].pull(10, now_ns=cluster.now_ns):
            return (cluster.now_ns - start_ns) / SECOND
    raise AssertionError("nothing was handed out")


def test_a_clean_hand_over_repeats_nothing() -> None:
    cluster = served()
    cluster.proxies[0].settle(["ack", "release"], now_ns=cluster.now_ns)
    cluster.want(1)
    assert first_hand_out(cluster, 1, within_s=5) < 2
    assert cluster.judge.deliveries == {0: 1, 1: 1, 2: 2}, "2 was handed back"


def test_a_hand_over_that_takes_too_long_leaves_only_the_leased_keys_waiting() -> None:
    """Key a is leased for 30 s; the next owner delivers b and new messages at once."""
    cluster = served(visibility_s=30, keys="ab")
    left, right = cluster.proxies
    leased_ns = cluster.now_ns
    left.settle(["nothing", "ack"], now_ns=cluster.now_ns)
    cluster.produce("a", "c")
    cluster.want(1)
    assert first_hand_out(cluster, 1, within_s=20) < DRAIN_NS / SECOND + 2
    assert cluster.judge.deliveries == {0: 1, 1: 1, 3: 1}
    right.settle(["ack"], now_ns=cluster.now_ns)
    first_hand_out(cluster, 1, within_s=40)
    assert cluster.now_ns >= leased_ns + 30 * SECOND
    assert cluster.judge.deliveries == {0: 2, 1: 1, 3: 1}


@pytest.mark.parametrize(("recorded", "again"), [(False, 2), (True, 1)])
def test_after_a_crash_only_unrecorded_messages_are_repeated(recorded: bool, again: int) -> None:
    cluster = served(keys="abcd")
    left, _ = cluster.proxies
    left.settle(["ack", "ack"], now_ns=cluster.now_ns)
    left.commit(now_ns=cluster.now_ns)
    left.settle(["release", "ack"], now_ns=cluster.now_ns)  # finished above the commit
    if recorded:
        cluster.run(1000)
    left.kill()
    cluster.want(1)
    first_hand_out(cluster, 1, within_s=20)
    assert sorted(cluster.judge.deliveries.items()) == [(0, 1), (1, 1), (2, 2), (3, again)]


def test_a_second_crash_does_not_bring_back_messages_that_a_clean_owner_recorded() -> None:
    """The owner in between wrote only its ``own`` record."""
    cluster = served(keys="abcd")
    left, right = cluster.proxies
    left.settle(["release", "ack", "ack", "ack"], now_ns=cluster.now_ns)
    cluster.want(1)
    cluster.run(3000)
    assert right.pipeline is not None
    right.kill()
    cluster.want(0)
    first_hand_out(cluster, 0, within_s=20)
    assert cluster.judge.deliveries == {0: 2, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize(
    ("visibility_s", "forgets", "wait_s"),
    [(5, False, 0), (30, False, 25), (5, True, 10), (30, True, 35)],
)
def test_a_stopped_owner_is_waited_for_as_long_as_its_leases_can_live(
    visibility_s: int, forgets: bool, wait_s: int
) -> None:
    """Its lock expired, or was forgotten by a restarted broker."""
    cluster = served(visibility_s=visibility_s, forgets_locks=forgets)
    left, right = cluster.proxies
    left.stop()
    cluster.want(1)
    if forgets:
        cluster.broker.restart(cluster.now_ns)
    while cluster.broker.locked_by != right.client:
        cluster.run(100, step_ms=100)
    waited_s = first_hand_out(cluster, 1, within_s=40)
    assert wait_s <= waited_s <= wait_s + 1
    left.resume()
    assert left.pull(10, now_ns=cluster.now_ns) == []
    cluster.finish()


def test_a_stopped_owner_without_a_successor_continues_once_trusted_again() -> None:
    cluster = served(keys="abc")
    left = cluster.proxies[0]
    epoch = left.pipeline and left.pipeline.epoch
    left.stop()
    cluster.run((TRUST_NS + EXPIRY_NS) // 1_000_000)
    left.resume()
    assert left.pull(10, now_ns=cluster.now_ns) == []
    assert first_hand_out(cluster, 0, within_s=5) < 3
    assert left.pipeline is not None
    assert left.pipeline.epoch == epoch


def test_a_hand_over_in_the_middle_of_a_wait_does_not_cut_the_wait_short() -> None:
    """A clean end makes the next owner not wait, so a waiting owner must not end cleanly yet."""
    cluster = served(visibility_s=30, forgets_locks=True)
    left, right = cluster.proxies
    cluster.broker.restart(cluster.now_ns)
    left.stop()
    left.want(wanted=False)
    right.want()
    cluster.run(2000)
    assert right.pipeline is not None
    left.kill()
    cluster.want(0)
    assert first_hand_out(cluster, 0, within_s=40) > 25


def test_two_that_take_over_at_once_do_not_both_go_on() -> None:
    """The broker forgets the first proxy's lock between its read and its write of records."""
    cluster = Cluster(visibility_ns=5 * SECOND, forgets_locks=True)
    cluster.produce("a")
    left, right = cluster.proxies
    cluster.run(500)  # the left one gets the lock, and reads the records
    cluster.broker.restart(cluster.now_ns)
    left.stop()
    right.want()
    cluster.run(500)  # the right one does the same
    left.resume()
    cluster.run(1000)  # both write their ``own`` record
    assert left.pull(1, now_ns=cluster.now_ns), "trusted, and the first to write"
    assert first_hand_out(cluster, 1, within_s=20) > 5


def test_an_owner_that_lost_its_broker_looks_at_the_records_before_it_goes_on() -> None:
    """It is trusted all the time, but the queue had another owner in between."""
    cluster = served(forgets_locks=True)
    left, right = cluster.proxies
    cluster.broker.restart(cluster.now_ns)
    left.stop()
    right.want()
    cluster.run(1000)
    assert right.pipeline is not None
    cluster.broker.restart(cluster.now_ns)
    right.kill()
    cluster.want(0)
    left.resume()
    cluster.run(2500)
    assert len(cluster.broker.records) > 2, "the left one has a new epoch"


def test_a_stopped_owner_forgets_all_if_another_owned_the_queue_since() -> None:
    """It gets its lock again, because the other one ended cleanly; its state is outdated."""
    cluster = served(keys="abc")
    left, right = cluster.proxies
    left.stop()
    cluster.want(1)
    cluster.run(12_000)
    assert len(right.pull(10, now_ns=cluster.now_ns)) == 3
    right.settle(["ack"] * 3, now_ns=cluster.now_ns)
    cluster.want(0)
    cluster.run(1000)
    left.resume()
    cluster.run(2000)
    assert left.pull(10, now_ns=cluster.now_ns) == []
    assert left.pipeline is not None
    assert left.pipeline.position == 3
