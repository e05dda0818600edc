"""Rate limits at one proxy: its share, the reserve, and changes of both."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker_core.names import Topic
from proxy.core.group.group_buffer import GroupBuffer, PullWish
from proxy.core.group.queue_census import AGREE_NS, QueueCensus
from proxy.core.group.rate_gate import RateGate
from proxy.core.group.token_bucket import SECOND, TokenBucket
from proxy.core.jobs.window import Budget
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from testkit.messages import TOPIC, keyed
from testkit.pipelines import HOLDER, pipeline, queue

OTHER = Topic("payments")
QUEUES = [queue(number) for number in range(8)]
LATER = 100 * SECOND


def gate(
    limit: float | None = 80, *, group: float | None = None, owned: int = 4
) -> tuple[RateGate, list[QueuePipeline]]:
    """Return the gate of a topic with eight queues, *owned* of them by this proxy since 0."""
    made = RateGate()
    made.limit(group, {TOPIC: limit}, now_ns=0)
    made.route(TOPIC, QUEUES, now_ns=0)
    pipelines = [pipeline(of=each) for each in QUEUES[:owned]]
    for each in pipelines:
        made.add(each, now_ns=0)
    return made, pipelines


def share(of: RateGate, now_ns: int, topic: Topic | None = TOPIC) -> float:
    return dict(of.shares(now_ns))[topic]


def test_without_limits_any_number_may_go_out() -> None:
    made, _ = gate(None)
    assert made.open
    assert made.left(TOPIC, LATER) is None


def test_a_proxy_hands_out_the_part_of_its_queues_and_saves_up_a_second_of_it() -> None:
    made, _ = gate(80, owned=4)
    assert share(made, LATER) == pytest.approx(40)
    assert made.left(TOPIC, LATER) == 40
    made.took(TOPIC, 40)
    assert made.left(TOPIC, LATER) == 0
    assert made.left(TOPIC, LATER + SECOND // 4) == 10
    assert made.left(OTHER, LATER) is None


def test_the_limit_of_the_group_counts_the_queues_of_all_its_topics() -> None:
    made = RateGate()
    made.limit(100, {TOPIC: None, OTHER: 10}, now_ns=0)
    made.route(TOPIC, QUEUES, now_ns=0)
    made.add(pipeline(of=QUEUES[0]), now_ns=0)
    made.add(pipeline(of=queue(0, topic=OTHER)), now_ns=0)
    assert share(made, SECOND, None) == 0, "the other topic is not known yet"
    made.route(OTHER, [queue(number, topic=OTHER) for number in range(2)], now_ns=0)
    assert share(made, SECOND, None) == pytest.approx(20)
    assert share(made, SECOND, OTHER) == pytest.approx(5)
    assert made.left(TOPIC, LATER) == 20
    assert made.left(OTHER, LATER) == 5, "the stricter limit counts"
    made.took(OTHER, 5)
    assert made.left(TOPIC, LATER) == 15


def test_a_topic_that_does_not_exist_yet_holds_up_no_other() -> None:
    made = RateGate()
    made.limit(80, {TOPIC: None, OTHER: None}, now_ns=0)
    made.add(pipeline(of=QUEUES[0]), now_ns=0)
    made.route(TOPIC, QUEUES, now_ns=0)
    made.route(OTHER, (), now_ns=0)
    assert share(made, SECOND, None) == pytest.approx(10)


def test_a_gained_queue_brings_no_burst_and_a_lost_one_takes_its_own_along() -> None:
    made, pipelines = gate(80, owned=1)
    assert made.left(TOPIC, LATER) == 10
    made.add(pipeline(of=QUEUES[5]), now_ns=LATER)
    assert made.left(TOPIC, LATER) == 10
    assert made.left(TOPIC, 2 * LATER) == 20
    made.remove(pipelines[0], now_ns=2 * LATER)
    assert made.left(TOPIC, 2 * LATER) == 10


def test_a_new_owner_begins_with_nothing() -> None:
    made, _ = gate(8, owned=8)
    assert made.left(TOPIC, 0) == 0
    assert made.left(TOPIC, SECOND // 8) == 1


def test_a_share_far_below_one_a_second_lets_one_through_in_time() -> None:
    made, _ = gate(0.5, owned=1)
    wait_ns = made.wait_ns(TOPIC, 0)
    assert wait_ns == pytest.approx(16 * SECOND, rel=0.001)
    assert made.left(TOPIC, int(15.9 * SECOND)) == 0
    assert made.left(TOPIC, 16 * SECOND + 1) == 1
    assert made.left(TOPIC, LATER) == 1, "no more than one is saved up"


def test_after_the_wait_a_portion_is_available_in_pieces() -> None:
    made, _ = gate(80_000, owned=4)
    made.took(TOPIC, made.left(TOPIC, LATER) or 0)
    wait_ns = made.wait_ns(TOPIC, LATER)
    assert wait_ns == pytest.approx(SECOND / 50, rel=0.001)
    assert made.left(TOPIC, LATER + wait_ns - SECOND // 1000) == 0
    assert made.left(TOPIC, LATER + wait_ns) == 800
    made.took(TOPIC, 799)
    assert made.left(TOPIC, LATER + wait_ns) == 1
    assert made.wait_ns(TOPIC, LATER + wait_ns) == 0


def test_another_limit_holds_at_once_and_brings_no_burst() -> None:
    made, _ = gate(80, owned=4)
    assert made.left(TOPIC, LATER) == 40
    made.limit(None, {TOPIC: 20}, now_ns=LATER)
    assert made.left(TOPIC, LATER) == 10
    made.limit(None, {TOPIC: 800}, now_ns=LATER)
    assert made.left(TOPIC, LATER) == 10
    assert made.left(TOPIC, LATER + SECOND // 10) == 50
    made.limit(None, {TOPIC: None}, now_ns=LATER)
    assert made.left(TOPIC, LATER) is None
    made.limit(None, {TOPIC: 8}, now_ns=LATER)
    assert made.left(TOPIC, LATER) == 0


def test_a_queue_counts_only_while_it_may_be_handed_out_from() -> None:
    made = RateGate()
    made.limit(None, {TOPIC: 80}, now_ns=0)
    made.route(TOPIC, QUEUES, now_ns=0)
    waiting = pipeline(of=QUEUES[0], hold_until_ns=5 * SECOND, trusted_until_ns=9 * SECOND)
    made.add(waiting, now_ns=0)
    made.add(other := pipeline(of=QUEUES[1]), now_ns=0)
    assert share(made, 4 * SECOND) == pytest.approx(10)
    assert share(made, 5 * SECOND) == pytest.approx(20)
    waiting.trust_until(12 * SECOND)  # renewed in time, which needs no call
    assert share(made, 11 * SECOND) == pytest.approx(20)
    assert share(made, 12 * SECOND) == pytest.approx(10)
    made.before_change(20 * SECOND)
    other.doubt()
    made.changed(other, 20 * SECOND)
    assert share(made, 20 * SECOND) == 0
    assert made.left(TOPIC, LATER) == 0
    assert made.wait_ns(TOPIC, LATER) is None, "a word will come before any time"


def test_tokens_accrue_until_a_lapse_and_not_after_it() -> None:
    made = RateGate()
    made.limit(None, {TOPIC: 80}, now_ns=0)
    made.route(TOPIC, QUEUES, now_ns=0)
    made.add(pipeline(of=QUEUES[0]), now_ns=0)
    made.add(pipeline(of=QUEUES[1], trusted_until_ns=SECOND // 2), now_ns=0)
    assert made.left(TOPIC, SECOND // 2 - 1) == 10
    made.took(TOPIC, 10)
    assert made.left(TOPIC, SECOND) == 5


def test_added_queues_divide_at_once_and_count_once_all_proxies_know_of_them() -> None:
    made, _ = gate(80, owned=4)
    more = [queue(number) for number in range(8, 16)]
    made.route(TOPIC, [*QUEUES, *more], now_ns=LATER)
    made.add(pipeline(of=more[0]), now_ns=LATER)
    assert share(made, LATER) == pytest.approx(20)
    assert share(made, LATER + AGREE_NS) == pytest.approx(25)


def test_queues_that_are_gone_are_divided_by_until_all_proxies_know_of_it() -> None:
    census = QueueCensus()
    assert census.look(QUEUES, now_ns=0)
    assert not census.look(QUEUES, now_ns=1)
    census.look(QUEUES[:2], now_ns=SECOND)
    assert census.total(AGREE_NS) == 8
    assert census.next_change_ns(AGREE_NS) == AGREE_NS + SECOND
    census.look(QUEUES[:3], now_ns=AGREE_NS)  # a broker was away for a moment
    assert census.has_share(QUEUES[2], AGREE_NS)
    assert census.total(AGREE_NS + SECOND) == 3


def test_a_bucket_tells_how_long_to_wait() -> None:
    bucket = TokenBucket()
    assert bucket.wait_ns(1) is None
    bucket.change(rate=10, capacity=5, now_ns=0)
    assert bucket.wait_ns(6) is None
    wait_ns = bucket.wait_ns(2)
    assert wait_ns is not None
    bucket.fill(wait_ns)
    assert bucket.whole == 2
    bucket.tokens -= 4
    assert bucket.whole == 0


def filled(rates: RateGate, *topics: Topic, jobs: int = 50) -> GroupBuffer:
    buffer = GroupBuffer(Budget(1000), rates)
    for topic in topics:
        made = pipeline(
            of=queue(0, topic=topic),
            messages=[keyed(offset, f"k{offset // 2}") for offset in range(jobs)],
        )
        buffer.add(made)
        rates.add(made, now_ns=0)
        rates.route(topic, [made.queue], now_ns=0)
    return buffer


def wish(*, max_run: int = 1, many: bool = True) -> PullWish:
    return PullWish(HOLDER, None, 100, 1 << 30, many, max_run)


def test_a_batch_never_exceeds_the_rate() -> None:
    rates = RateGate()
    rates.limit(None, {TOPIC: 10}, now_ns=0)
    buffer = filled(rates, TOPIC)
    assert buffer.lease(wish(), now_ns=0) == []
    assert buffer.limited_ns(None, now_ns=0) == pytest.approx(SECOND / 10, rel=0.001)
    [batch] = buffer.lease(wish(max_run=8), now_ns=LATER)
    assert len(batch.leases) == 10
    assert buffer.lease(wish(), now_ns=LATER) == []


def test_a_run_takes_of_the_rate_as_well() -> None:
    rates = RateGate()
    rates.limit(None, {TOPIC: 10}, now_ns=0)
    buffer = filled(rates, TOPIC, jobs=6)  # three keys of two
    [batch] = buffer.lease(wish(max_run=8), now_ns=SECOND // 2)
    assert len(batch.leases) == 5
    assert buffer.lease(wish(), now_ns=SECOND // 2) == []


def test_a_limited_topic_holds_up_no_other_of_its_group() -> None:
    rates = RateGate()
    rates.limit(None, {TOPIC: 1, OTHER: None}, now_ns=0)
    buffer = filled(rates, TOPIC, OTHER)
    [batch] = buffer.lease(wish(), now_ns=0)
    assert batch.pipeline.topic == OTHER
    assert buffer.has_ready
    assert buffer.limited_ns([OTHER], now_ns=0) is None


def test_topics_take_turns_under_a_limit_of_their_group() -> None:
    rates = RateGate()
    rates.limit(100, {TOPIC: None, OTHER: None}, now_ns=0)
    buffer = filled(rates, TOPIC, OTHER)
    served = []
    for number in range(1, 9):
        batches = buffer.lease(wish(many=False), now_ns=number * SECOND // 50 + number)
        served += [str(batch.pipeline.topic) for batch in batches]
    assert served == [TOPIC, OTHER] * 4


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-12])
def test_the_lowest_limits_let_nothing_out_and_raise_nothing(limit: float) -> None:
    made, _ = gate(limit, owned=1)
    assert made.left(TOPIC, LATER) == 0
    assert made.wait_ns(TOPIC, LATER) is None
    made.limit(None, {TOPIC: 80}, now_ns=LATER)
    assert made.left(TOPIC, 2 * LATER) == 10


class _Queue:
    """An owned queue that counts how often its topic is asked for."""

    is_twin = doubtful = closed = False
    hold_until_ns, trusted_until_ns = 0, 1 << 60
    asked = 0

    def __init__(self, topic: Topic) -> None:
        self.queue, self._topic = queue(0, topic=topic), topic

    @property
    def topic(self) -> Topic:
        _Queue.asked += 1
        return self._topic


def test_a_lost_queue_costs_the_same_however_many_topics_there_are() -> None:
    costs = []
    for topics in (20, 40):
        made = RateGate()
        names = [Topic(f"t{number}") for number in range(topics)]
        made.limit(None, dict.fromkeys(names, 80.0), now_ns=0)
        owned: list[Any] = [_Queue(name) for name in names]
        for each, name in zip(owned, names, strict=True):
            made.route(name, [each.queue], now_ns=0)
            made.add(each, now_ns=0)
        _Queue.asked = 0
        made.remove(owned[0], now_ns=0)
        costs.append(_Queue.asked)
        assert share(made, SECOND, names[1]) == pytest.approx(80)
    assert costs == [0, 0]


def test_a_pull_costs_as_much_as_there_are_limited_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a pull was once in the square of the number of topics that wait."""
    fill = TokenBucket.fill
    fills: list[TokenBucket] = []

    def counted(bucket: TokenBucket, now_ns: int) -> None:
        fills.append(bucket)
        fill(bucket, now_ns)

    monkeypatch.setattr(TokenBucket, "fill", counted)
    costs = []
    for count in (20, 40):
        topics = [Topic(f"t{number}") for number in range(count)]
        rates = RateGate()
        rates.limit(None, dict.fromkeys(topics, 1.0), now_ns=0)
        buffer = filled(rates, *topics, jobs=3)
        assert len(buffer.lease(wish(), now_ns=SECOND)) == count
        fills.clear()
        assert buffer.lease(wish(), now_ns=SECOND + 1) == []
        assert buffer.limited_ns(None, now_ns=SECOND + 1) == pytest.approx(SECOND, rel=0.001)
        costs.append(len(fills))
    assert costs == [40, 80]


def test_a_queue_that_comes_or_goes_costs_the_same_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy that takes over n queues took n² steps."""
    asked = 0
    has_share = QueueCensus.has_share

    def counted(self: QueueCensus, *arguments: Any) -> bool:
        nonlocal asked
        asked += 1
        return has_share(self, *arguments)

    monkeypatch.setattr(QueueCensus, "has_share", counted)
    made = RateGate()
    made.limit(None, {TOPIC: 80}, now_ns=0)
    there = [queue(number) for number in range(200)]
    made.route(TOPIC, there, now_ns=0)
    owned = [pipeline(of=each) for each in there]
    for number, each in enumerate(owned):
        made.add(each, now_ns=number)
    for number, each in enumerate(owned):
        made.before_change(1000 + number)
        each.doubt()
        made.changed(each, 1000 + number)
        made.remove(each, now_ns=1000 + number)
    assert asked <= 2 * len(owned)


@pytest.mark.parametrize("seed", range(20))
def test_shares_that_are_changed_one_by_one_are_those_of_a_whole_count(seed: int) -> None:
    """Queues come and go, wait, and lose and regain trust; now and then all are counted again."""
    draw = random.Random(seed)
    made, counted = RateGate(), RateGate()
    everything = [*QUEUES, *(queue(number, topic=OTHER) for number in range(4))]
    now, limits = 0, {TOPIC: 80.0, OTHER: None}
    for each in (made, counted):
        each.limit(50, limits, now_ns=0)
        each.route(TOPIC, QUEUES, now_ns=0)
        each.route(OTHER, everything[len(QUEUES) :], now_ns=0)
    owned: dict[Any, QueuePipeline] = {}
    for _ in range(300):
        now += draw.choice([0, 1, SECOND // 3, SECOND, 5 * SECOND])
        place = draw.choice(everything)
        match draw.randrange(6):
            case 0 | 1 if place not in owned:
                hold_ns, trust_ns = draw.randrange(3 * SECOND), draw.randrange(1, 9 * SECOND)
                owned[place] = pipeline(
                    of=place, hold_until_ns=now + hold_ns, trusted_until_ns=now + trust_ns
                )
                for each in (made, counted):
                    each.add(owned[place], now_ns=now)
            case 2 if place in owned:
                gone = owned.pop(place)
                for each in (made, counted):
                    each.remove(gone, now_ns=now)
            case 3 | 4 if place in owned:
                changed, doubt = owned[place], draw.random() < 0.3
                for each in (made, counted):
                    each.before_change(now)
                if doubt:
                    changed.doubt()
                else:
                    changed.trust_until(now + draw.randrange(1, 9 * SECOND))
                for each in (made, counted):
                    each.changed(changed, now)
            case 5:
                shown = draw.sample(QUEUES, 6)
                for each in (made, counted):
                    each.route(TOPIC, shown, now_ns=now)
        counted.limit(50, limits, now_ns=now)  # counts all queues
        assert dict(made.shares(now)) == pytest.approx(dict(counted.shares(now)))
        assert made.left(TOPIC, now) == counted.left(TOPIC, now)
        if draw.random() < 0.5 and (left := made.left(TOPIC, now)):
            for each in (made, counted):
                each.took(TOPIC, left)


def test_a_removed_queue_that_is_still_owned_loses_its_share_when_it_counts_no_longer() -> None:
    made, _ = gate(80, owned=2)
    made.route(TOPIC, QUEUES[1:], now_ns=0)
    assert share(made, AGREE_NS - 1) == pytest.approx(2 / 8 * 80)
    assert share(made, AGREE_NS) == pytest.approx(1 / 7 * 80)
