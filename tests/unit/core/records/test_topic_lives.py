"""Lives of topics: how incarnations are distinguished."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from broker_core.broker.topics.topics import Topics
from broker_core.names import Topic
from broker_core.remoting.route_bodies import TopicConfig
from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord, KeyRule
from proxy.core.ownership.recording import Recording
from proxy.core.records.codec import decode, encode
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Anchor, Clean, Delta, Own, Record, Snapshot
from proxy.core.records.replay import LastOwner, replay
from proxy.core.records.snapshot_parts import parts
from testkit.messages import keyed
from testkit.pipelines import KEYS, pipeline
from tests.unit.core.records.ownership_records import write

ORDERS = Topic("orders")


def test_a_topic_that_is_created_again_is_in_another_life_also_after_a_restart() -> None:
    topics = Topics()
    topics.put(TopicConfig(topic=ORDERS), now_ms=5)
    first = topics.life(ORDERS)
    topics.remove(ORDERS, now_ms=5)
    assert topics.life(ORDERS) is None
    topics = Topics.from_table(topics.to_table())
    topics.put(TopicConfig(topic=ORDERS), now_ms=3)  # the clock was set back
    assert first is not None
    assert (topics.life(ORDERS) or 0) > first
    assert Topics.from_table(topics.to_table()).life(ORDERS) == topics.life(ORDERS)


def test_a_topic_that_changes_stays_in_its_life() -> None:
    topics = Topics()
    topics.put(TopicConfig(topic=ORDERS, read_queues=8), now_ms=5)
    life = topics.life(ORDERS)
    topics.put(TopicConfig(topic=ORDERS, read_queues=4), now_ms=9)
    assert topics.life(ORDERS) == life


def test_a_topic_older_than_lives_is_in_life_0_and_its_successor_is_not() -> None:
    topics = Topics()
    topics.put(TopicConfig(topic=ORDERS), now_ms=5)
    table = topics.to_table()
    del table["lives"], table["lastLife"]
    topics = Topics.from_table(table)
    assert topics.life(ORDERS) == 0
    topics.remove(ORDERS, now_ms=6)
    topics.put(TopicConfig(topic=ORDERS), now_ms=7)
    assert topics.life(ORDERS) == 7


def own(
    *,
    life: int | None,
    owner: str = "one",
    start: int | None = None,
    origin_life: int | None = None,
) -> Own:
    return Own(owner, 5000, 5000, 1, 1, life=life, start=start, origin_life=origin_life)


def replayed(*records: Record) -> LastOwner:
    last = replay(enumerate(records))
    assert last is not None
    return last


def test_a_record_says_in_which_life_its_owner_began_and_where() -> None:
    records = (own(life=7, start=3), own(life=0, start=0, origin_life=0), own(life=None))
    for record in records:
        assert decode(encode(record)) == record
    assert b"life" not in encode(own(life=None))


def test_records_contain_the_place_of_the_last_message_read() -> None:
    anchor = Anchor(8, 12_345)
    (part,) = parts(Snapshot(Epoch(0), 9, 9, anchor=anchor), own(life=None))
    delta = Delta(Epoch(0), 1, 12, 12, after=1, anchor=Anchor(11, 23_456))
    assert [decode(encode(each)) for each in (part, delta)] == [part, delta]
    last = replayed(own(life=None), part)
    assert last.snapshot is not None
    assert last.snapshot.anchor == anchor
    last = replayed(own(life=None), part, delta)
    assert last.snapshot is not None
    assert last.snapshot.anchor == delta.anchor
    assert last.snapshot.cut_at(5).anchor is None
    assert last.snapshot.moved_to(3).anchor is None


def test_of_a_former_life_nothing_counts_but_pauses() -> None:
    pauses = {b"k": PausedKey(1, "ada", "so")}
    known = Snapshot(
        *(Epoch(0), 4, 9, (4, 7), {4: 2}),
        leases={4: 900},
        parked={b"p": ParkedKey(3, 0)},
        paused=pauses,
    )
    last = replayed(own(life=7), *parts(known, own(life=7)))
    assert last.in_life(7) is last
    assert last.in_life(None) is last  # its broker does not report lives

    now = last.in_life(8)
    assert now.begins_life
    assert now.snapshot == Snapshot(Epoch(0), 0, 0, paused=pauses)
    assert (now.snapshot_at, now.damage, now.life) == (None, None, 8)
    assert now.own == last.own  # its leases may live on


def test_a_snapshot_of_a_former_life_does_not_count_for_an_owner_that_wrote_none() -> None:
    """It was killed as soon as its period had begun; the state is that of the previous owner."""
    last = replayed(own(life=7), *parts(Snapshot(Epoch(0), 8, 8), own(life=7)), own(life=8))
    assert (last.epoch, last.own.life, last.life) == (2, 8, 7)
    assert last.in_life(8).begins_life


def test_deltas_belong_to_the_life_of_their_snapshot() -> None:
    records = [own(life=7), *parts(Snapshot(Epoch(0), 8, 8), own(life=7)), own(life=7, owner="two")]
    last = replayed(*records, Delta(Epoch(2), 1, 9, 9, after=1))
    assert (last.life, last.snapshot) == (7, Snapshot(Epoch(2), 9, 9))


@pytest.mark.parametrize("with_own", [True, False])
def test_records_of_proxies_that_know_no_lives_count_in_any(with_own: bool) -> None:
    whole = own(life=None)
    last = replayed(whole, *parts(Snapshot(Epoch(0), 8, 8), whole if with_own else None))
    assert last.in_life(8) is last


def test_a_change_of_the_order_key_is_over_in_the_next_life() -> None:
    keys = KeyRecord(KeyRule("KEY"), version=2, since=6, before=KeyRule("QID"))
    last = replayed(own(life=7), *parts(Snapshot(Epoch(0), 4, 9, keys=keys), own(life=7)))
    now = last.in_life(8).snapshot
    assert now is not None
    assert now.keys == keys.reset_to(0)


def test_a_restored_log_continues_the_lives_of_its_topics_up_to_its_end() -> None:
    topics = Topics()
    topics.put(TopicConfig(topic=ORDERS, read_queues=2, write_queues=2), now_ms=5)
    topics.continue_lives(lambda _, queue_id: 40 if queue_id else 0, now_ms=9)
    topics = Topics.from_table(topics.to_table())
    assert topics.life(ORDERS) == 9
    assert [topics.former_lives(ORDERS, number) for number in (0, 1)] == [{5: 0}, {5: 40}]


def test_a_topic_that_is_created_again_continues_nothing() -> None:
    topics = Topics()
    topics.put(TopicConfig(topic=ORDERS), now_ms=5)
    topics.continue_lives(lambda *_: 40, now_ms=9)
    topics.remove(ORDERS, now_ms=10)
    assert topics.patch([ORDERS])["formerLives"] == {ORDERS: None}
    topics.put(TopicConfig(topic=ORDERS), now_ms=11)
    assert topics.former_lives(ORDERS, 0) == {}


def test_a_topic_that_changes_keeps_what_it_continues() -> None:
    topics = Topics()
    topics.put(TopicConfig(topic=ORDERS, read_queues=8), now_ms=5)
    topics.continue_lives(lambda *_: 40, now_ms=9)
    changed = TopicConfig(topic=ORDERS, read_queues=4)
    planned = topics.plan([changed], now_ms=12)
    topics.put(changed, now_ms=12)
    assert topics.patch([ORDERS]) == planned
    assert topics.former_lives(ORDERS, 7) == {5: 40}


def test_records_of_a_restored_log_count_and_positions_behind_its_end_do_not() -> None:
    known = Snapshot(Epoch(0), 4, 9, (4, 7), {4: 2, 7: 1}, parked={b"p": ParkedKey(3, 0)})
    last = replayed(own(life=7, start=2), *parts(known, own(life=7, start=2)))

    whole = last.in_life(8, former={7: 9})
    assert not whole.begins_life
    assert whole.snapshot == last.snapshot
    assert (whole.life, whole.own.life, whole.own.start) == (8, 8, 2)

    cut = last.in_life(8, former={7: 6}).snapshot
    assert cut is not None
    assert (cut.base, cut.read, cut.unfinished, cut.attempts) == (4, 6, (4,), {4: 2})
    below = last.in_life(8, former={7: 1})
    assert (below.snapshot and below.snapshot.read, below.own.start) == (1, 1)


@pytest.mark.parametrize("end", [2, 6, 9])
def test_what_an_owner_of_a_restored_log_records_counts_for_the_next_one(end: int) -> None:
    """Deltas of the former life would be cut at its end again, with all that was finished since."""
    before = [own(life=7), *parts(Snapshot(Epoch(0), 4, 9, (4, 7), keys=KEYS), own(life=7))]
    last = replayed(*before).in_life(8, former={7: end})
    assert last.snapshot is not None
    queue = pipeline(epoch=2, resume=last.snapshot)
    recording = Recording(queue, last, own(life=8))
    records = [*before, own(life=8), *write(recording, 3)]
    for at in (4, 5):
        stored = [keyed(offset, "a") for offset in range(queue.position, 3 * at)]
        queue.on_messages(stored, next_offset=3 * at)
        records += write(recording, at)
    now = replayed(*records).in_life(8, former={7: end}).snapshot
    assert now is not None
    assert (now.read, now.unfinished) == (15, queue.snapshot().unfinished)


def test_an_owner_of_a_restored_log_may_not_be_the_last_one_so_its_clean_end_says_nothing() -> None:
    last = replayed(own(life=7), Clean(Epoch(0)))
    assert last.clean
    assert not last.in_life(8, former={7: 9}).clean


def test_a_life_that_a_restored_log_does_not_continue_counts_for_nothing() -> None:
    known = Snapshot(Epoch(0), 4, 9)
    last = replayed(own(life=7), *parts(known, own(life=7)))
    assert last.in_life(8, former={6: 9}).begins_life


def twin_in(origin_life: int | None) -> LastOwner:
    """Return the state of a parked twin with a redriven key, recorded in that life of the topic of
    its queue.
    """
    before = own(life=7, origin_life=origin_life)
    known = Snapshot(
        *(Epoch(0), 2, 9, (), {4: 2}),
        spilled={b"p": array("q", (2, 4, 8))},
        leases={4: 900},
        parked={b"p": ParkedKey(6, 3, redriven=True)},
    )
    return replayed(before, *parts(known, before))


def test_copies_in_the_records_of_a_twin_are_finished_in_the_next_life_of_their_topic() -> None:
    """The twin was not deleted with it: its own offsets go on."""
    last = twin_in(30)
    assert last.of_origin(30) is last
    assert last.of_origin(None) is last

    now = last.of_origin(31)
    assert now.snapshot == Snapshot(Epoch(0), 9, 9)
    assert (now.snapshot_at, now.origin_life, now.life) == (None, 31, 7)


def test_copies_in_the_records_of_a_twin_count_in_a_life_that_continues_their_own() -> None:
    now = twin_in(30).of_origin(31, former={30: 5})
    before = twin_in(30).snapshot
    assert before is not None
    assert now.snapshot == replace(before, parked={b"p": ParkedKey(5, 3, redriven=True)})


def test_records_of_a_twin_that_name_no_life_of_its_queue_count_in_any() -> None:
    last = twin_in(None)
    assert last.of_origin(31) is last


def test_the_state_of_a_twin_belongs_to_the_life_of_its_snapshot() -> None:
    known = own(life=7, origin_life=30)
    last = replayed(known, *parts(Snapshot(Epoch(0), 8, 8), known), own(life=7, origin_life=31))
    assert (last.own.origin_life, last.origin_life) == (31, 30)
