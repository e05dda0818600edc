"""Planning of streams and batches: offsets to read, and reported losses."""

from __future__ import annotations

import pickle

import pytest

from thin_client.spark.admission import Admission, proportional
from thin_client.spark.offsets import (
    Offsets,
    QueueState,
    Slice,
    batch_of,
    flat,
    lives_of,
    stream_offset,
)
from thin_client.spark.option_values import OptionError
from thin_client.spark.options import ReadOptions
from thin_client.spark.planning import (
    Loss,
    MessagesGone,
    Plan,
    backlog,
    loss_summary,
    pack,
    plan_batch,
    plan_stream,
    split,
)
from thin_client.spark.selection import Selection

A = Selection(subscribe=("a",))
LIMITS = {"servers": "proxy", "group": "lake", "subscribe": "a"}


def state(begin: int, end: int, qid: str = "x_0", topic: str = "a") -> QueueState:
    return QueueState(topic, qid, begin, end)


def alive(begin: int, end: int, *, life: int) -> QueueState:
    return QueueState("a", "x_0", begin, end, life=life)


def admission(**given: str) -> Admission:
    return Admission(ReadOptions.parse({**LIMITS, **given}, streaming=True))


def target(which: Admission, start: Offsets, *states: QueueState, now_s: float = 0.0) -> Offsets:
    return plain(which.target(start, states, now_s=now_s).offsets)


def plain(offsets: Offsets) -> Offsets:
    """Return *offsets* without their version."""
    about = {name: life for name, life in offsets[""].items() if name != "version"}
    return ({"": about} if about else {}) | {name: offsets[name] for name in offsets if name}


def v2(offsets: Offsets) -> Offsets:
    """Return *offsets* with their version, as Spark stores them."""
    return stream_offset(flat(offsets), lives_of(offsets))


# ---- losses -------------------------------------------------------------------------------------


def test_what_retention_took_is_lost_and_reading_goes_on_behind_it() -> None:
    start, states = {"a": {"x_0": 5}}, [state(8, 20)]
    found = backlog(start, states, A)
    assert found.waiting == [Slice("a", "x_0", 8, 20)]
    assert [str(loss) for loss in found.losses] == [
        "queue 'x_0' of the topic 'a' starts at 8: the broker deleted offsets 5 to 7 (3 messages)"
    ]
    planned = plan_stream(start, {"a": {"x_0": 20}}, states)
    assert planned == Plan([Slice("a", "x_0", 8, 20)], found.losses)
    gone = plan_stream(start, {"a": {"x_0": 7}}, states)
    assert gone.slices == []
    assert [(loss.reason, loss.messages) for loss in gone.losses] == [
        ("starts at 8: the broker deleted offsets 5 to 6 (2 messages)", 2)
    ]


def test_what_starts_with_the_oldest_message_or_ends_with_the_last_one_lost_nothing() -> None:
    start, end, states = {"a": {"x_0": 8}}, {"a": {"x_0": 20}}, [state(8, 20)]
    assert backlog(start, states, A).losses == []
    assert plan_stream(start, end, states) == Plan([Slice("a", "x_0", 8, 20)], [])
    assert backlog(end, states, A).losses == []
    short = plan_stream(start, end, [state(8, 19)])
    assert short.slices == []
    assert [loss.messages for loss in short.losses] == [12]


def test_a_queue_created_again_is_read_from_its_beginning() -> None:
    start, states = {"a": {"x_0": 50}}, [state(0, 20)]
    which = admission(maxOffsetsPerTrigger="15")
    found = which.target(start, states, now_s=0.0)
    assert found.offsets == v2({"a": {"x_0": 0}}), "its start is recorded first"
    assert [str(loss) for loss in found.losses] == [
        "queue 'x_0' of the topic 'a' ends at 20, before 50: it was created again, with an unknown"
        " number of unread messages; the new one has 20 messages"
    ]
    assert plan_stream(start, found.offsets, states) == Plan([], [])
    following = which.target(found.offsets, states, now_s=0.0)
    assert following.losses == []
    assert plan_stream(found.offsets, following.offsets, states) == Plan(
        [Slice("a", "x_0", 0, 15)], []
    )


@pytest.mark.parametrize("size", [4, 10, 25], ids=["smaller", "as large", "larger"])
def test_a_topic_that_was_created_again_is_read_from_its_beginning(size: int) -> None:
    """Its positions include the life of the topic."""
    which = admission(maxOffsetsPerTrigger="10")
    old, new = alive(0, 12, life=3), alive(0, size, life=9)
    start = which.target({"": {"a/x_0": 3}, "a": {"x_0": 0}}, [old], now_s=0.0).offsets
    assert start == {"": {"version": 2, "a/x_0": 3}, "a": {"x_0": 10}}
    found = which.target(start, [new], now_s=0.0)
    assert found.offsets == {"": {"version": 2, "a/x_0": 9}, "a": {"x_0": 0}}
    assert [(str(loss), loss.messages) for loss in found.losses] == [
        (
            "queue 'x_0' of the topic 'a' was read up to 10; its topic was deleted and created"
            " again since, or restored from an older copy of its broker's log, with at least 2"
            f" unread messages; the new one has {size} messages",
            2,
        )
    ]
    assert plan_stream(start, found.offsets, [new]) == Plan([], [])
    last = which.target(found.offsets, [new], now_s=0.0)
    assert last.losses == []
    assert plan_stream(found.offsets, last.offsets, [new]) == Plan(
        [Slice("a", "x_0", 0, min(size, 10), 9)], []
    )


def test_a_topic_that_was_created_again_with_fewer_queues_loses_the_others() -> None:
    """Their positions do not come back with a later life of the topic."""
    which = admission()
    lives = {"a/x_0": 3, "a/x_1": 3, "a/y_0": 5}
    start = {"": {"version": 2, **lives}, "a": {"x_0": 10, "x_1": 7, "y_0": 2}}
    found = which.target(start, [alive(0, 25, life=9)], now_s=0.0)
    assert found.offsets == {"": {"version": 2, "a/x_0": 9, "a/y_0": 5}, "a": {"x_0": 0, "y_0": 2}}
    assert [loss.reason for loss in found.losses] == [
        "was read up to 10; its topic was deleted and created again since, or restored from an"
        " older copy of its broker's log, with an unknown number"
        " of unread messages; the new one has 25 messages",
        "was read up to 7; its topic was deleted and created again since without this queue, with"
        " an unknown number of unread messages",
        "is missing (deleted, no longer in the group, or its broker is down); it was read up to 2",
    ]
    again = [alive(0, 25, life=9), QueueState("a", "x_1", 0, 8, life=9)]
    assert flat(which.target(found.offsets, again, now_s=0.0).offsets)["a", "x_1"] == 0


def test_a_topic_created_again_after_its_batch_was_decided_on_waits_for_the_next_batch() -> None:
    start, end = {"": {"a/x_0": 3}, "a": {"x_0": 5}}, {"": {"a/x_0": 3}, "a": {"x_0": 10}}
    planned = plan_stream(start, end, [alive(0, 25, life=9)])
    assert planned.slices == []
    assert [(loss.reason, loss.messages) for loss in planned.losses] == [
        (
            "belongs to a topic that was deleted and created again since, or restored from an older"
            " copy of its broker's log; the batch had offsets 5"
            " to 9 of it (5 messages)",
            5,
        )
    ]


def test_a_checkpoint_without_lives_continues_and_stores_them_from_now_on() -> None:
    found = admission().target({"a": {"x_0": 5}}, [alive(0, 9, life=3)], now_s=0.0)
    assert (plain(found.offsets), found.losses) == ({"": {"a/x_0": 3}, "a": {"x_0": 9}}, [])
    held = admission(minOffsetsPerTrigger="50")
    start = {"": {"a/x_0": 3}, "a": {"x_0": 5}}
    assert target(held, start, alive(0, 9, life=3)) == start
    assert target(admission(), start, state(0, 5)) == start, "a life is kept while none is reported"


def test_positions_are_reported_without_their_lives() -> None:
    offsets = {"": {"version": 2, "a/x_0": 3}, "a": {"x_0": 5}}
    assert flat(offsets) == {("a", "x_0"): 5}
    assert lives_of(offsets) == {("a", "x_0"): 3}


def test_a_queue_created_again_before_planning_waits_for_the_next_batch() -> None:
    start, end, states = {"a": {"x_0": 10}}, {"a": {"x_0": 30}}, [state(0, 20)]
    planned = plan_stream(start, end, states)
    assert planned.slices == []
    assert [loss.reason for loss in planned.losses] == [
        "ends at 20: it was created again; the batch had offsets 10 to 29 of it (20 messages)"
    ]
    assert backlog(end, states, A).begun == {("a", "x_0"): 0}


def test_a_queue_that_vanished_keeps_its_position_until_it_comes_back() -> None:
    start = {"a": {"x_0": 5, "x_1": 7}}
    found = admission().target(start, [state(0, 9)], now_s=0)
    assert plain(found.offsets) == {"a": {"x_0": 9, "x_1": 7}}
    assert [str(loss) for loss in found.losses] == [
        "queue 'x_1' of the topic 'a' is missing (deleted, no longer in the group, or its broker is"
        " down); it was read up to 7"
    ]
    back = admission().target(found.offsets, [state(0, 9), state(0, 8, "x_1")], now_s=0)
    assert (plain(back.offsets), back.losses) == ({"a": {"x_0": 9, "x_1": 8}}, [])


def test_a_batch_reports_a_missing_queue() -> None:
    planned = plan_stream({"a": {"x_0": 5}}, {"a": {"x_0": 9}}, [])
    assert planned.slices == []
    assert [loss.reason for loss in planned.losses] == [
        "is missing (deleted, or its broker is down); the batch had offsets 5 to 8 of it"
        " (4 messages)"
    ]


def test_a_topic_that_is_no_longer_asked_for_keeps_its_position_and_lost_nothing() -> None:
    start = {"a": {"x_0": 5}, "b": {"x_0": 3}}
    found = admission().target(start, [state(0, 9), state(0, 8, topic="b")], now_s=0)
    assert plain(found.offsets) == {"a": {"x_0": 9}, "b": {"x_0": 3}}
    assert found.losses == []


def test_new_queues_are_read_from_their_beginning_once_it_is_recorded() -> None:
    start, states = {"a": {"x_0": 5}}, [state(0, 9), state(2, 4, "x_1")]
    end = admission().target(start, states, now_s=0.0).offsets
    assert end == v2({"a": {"x_0": 9, "x_1": 2}})
    assert plan_stream(start, end, states) == Plan([Slice("a", "x_0", 5, 9)], [])
    later = admission().target(end, states, now_s=0.0).offsets
    assert plan_stream(end, later, states) == Plan([Slice("a", "x_1", 2, 4)], [])
    gone = plan_stream(end, later, [state(3, 4, "x_1")])
    assert [loss.messages for loss in gone.losses] == [1], "a repetition misses it"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({}, {"a": {"x_0": 9}}),
        ({"a": {"x_1": 3}}, {"a": {"x_0": 9, "x_1": 3}}),
        ({"": {"a/x_0": 3}, "a": {"x_0": 5}}, {"": {"a/x_0": 4}, "a": {"x_0": 9}}),
        ({"a": {"x_0": 5}}, {"a": {"x_0": 3}}),
    ],
    ids=["first batch", "new queue", "new life", "shorter queue"],
)
def test_a_batch_reads_nothing_of_a_queue_that_it_begins(start: Offsets, end: Offsets) -> None:
    """An earlier version read from a start that it did not store: its batch is refused."""
    assert batch_of(start, v2(end)) == []
    with pytest.raises(OptionError, match="did not store where it begins in the queue"):
        batch_of(start, end)


@pytest.mark.parametrize(
    ("start", "selection", "loses"),
    [
        ({"a": {"x_1": 5}}, A, True),
        ({"b": {"x_0": 5}}, A, False),
        ({"b": {"x_0": 5}}, Selection(pattern="."), True),
        ({"a": {"x_1": 5}}, Selection(assign={"a": ("x_0", "x_1")}), False),
    ],
    ids=["new queue", "new name", "new topic that fits", "newly assigned"],
)
def test_what_came_by_itself_lost_its_beginning_what_was_added_did_not(
    start: Offsets, selection: Selection, loses: bool
) -> None:
    states = [
        state(4, 9),
        *(state(0, 5, qid, topic) for topic, qid in [("a", "x_1"), ("b", "x_0")]),
    ]
    found = backlog(start, states, selection)
    assert found.begun["a", "x_0"] == 4
    assert sum(loss.messages for loss in found.losses) == (4 if loses else 0)


def test_a_batch_reads_between_its_offsets_as_far_as_it_is_there() -> None:
    states = [state(8, 20), state(0, 9, "x_1"), state(0, 9, "x_2")]
    start = {"a": {"x_0": 5, "x_1": 9, "x_2": 4}}
    planned = plan_batch(start, {"a": {"x_0": 20, "x_1": 9, "x_2": 2}}, states)
    assert planned.slices == [Slice("a", "x_0", 8, 20)]
    assert [loss.queue for loss in planned.losses] == [("a", "x_0")]


def test_losses_are_one_sentence_that_says_what_to_do() -> None:
    losses = [Loss(("a", f"x_{index}"), "is gone") for index in range(7)]
    error = MessagesGone(losses[:1])
    assert str(error) == (
        "unread messages are gone: queue 'x_0' of the topic 'a' is gone; "
        "set failOnDataLoss to false to continue with the remaining messages, or restart the query "
        "with a new checkpoint"
    )
    assert loss_summary(losses).endswith("'x_3' of the topic 'a' is gone; and 3 more")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# ---- limits and times ---------------------------------------------------------------------------


def test_a_limit_is_split_in_proportion_to_what_waits() -> None:
    waiting = [Slice("a", f"x_{index}", 0, size) for index, size in enumerate((600, 300, 100, 0))]
    assert proportional(100, waiting) == [60, 30, 10, 0]
    assert proportional(None, waiting) == [600, 300, 100, 0]
    assert proportional(5000, waiting) == [600, 300, 100, 0]
    rounded = [Slice("a", f"x_{index}", 0, size) for index, size in enumerate((66, 17, 17))]
    assert proportional(10, rounded) == [6, 2, 2], "remainders go to queues that lost most"


def test_a_small_queue_is_not_left_waiting_beside_a_large_one() -> None:
    waiting = [Slice("a", "x_0", 0, 10**12), Slice("a", "x_1", 0, 1)]
    assert proportional(10, waiting) == [9, 1]


def test_all_that_is_there_is_read_where_spark_asks_for_it() -> None:
    limited = admission(maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2")
    start = {"a": {"x_0": 0}}
    assert target(limited, start, state(0, 9)) == {"a": {"x_0": 3}}
    found = limited.target(start, [state(0, 9)], now_s=0, limited=False)
    assert plain(found.offsets) == {"a": {"x_0": 9}}
    found = limited.target(start, [state(0, 1)], now_s=0, limited=False)
    assert plain(found.offsets) == {"a": {"x_0": 1}}


def test_a_stream_is_behind_while_a_batch_leaves_messages() -> None:
    limited = admission(maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2")
    for begin, end, behind in ((0, 9, True), (6, 9, False), (8, 9, False), (9, 9, False)):
        found = limited.target({"a": {"x_0": begin}}, [state(0, end)], now_s=0)
        assert found.behind is behind, begin


def test_a_small_batch_waits_until_it_has_grown_or_its_time_has_come() -> None:
    held = admission(minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    start = {"a": {"x_0": 0}}
    assert target(held, start, state(0, 0), now_s=0) == start
    assert target(held, start, state(0, 4), now_s=1000) == start
    assert target(held, start, state(0, 9), now_s=1059) == start
    assert target(held, start, state(0, 9), now_s=1060) == {"a": {"x_0": 9}}
    start = {"a": {"x_0": 9}}
    assert target(held, start, state(0, 10), now_s=1061) == start, "its delay starts again"
    assert target(held, start, state(0, 19), now_s=1062) == {"a": {"x_0": 19}}


def test_a_delayed_batch_still_reports_losses() -> None:
    held = admission(minOffsetsPerTrigger="10")
    found = held.target({"a": {"x_0": 0}}, [state(3, 4)], now_s=0)
    assert plain(found.offsets) == {"a": {"x_0": 0}}
    assert [loss.queue for loss in found.losses] == [("a", "x_0")]


def test_available_now_ends_at_what_was_there_when_it_began() -> None:
    now = admission(maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3")
    now.end_at([state(0, 5), state(0, 0, "x_1")])
    later = [state(0, 99), state(0, 99, "x_1"), state(0, 99, "x_2")]
    start = {"a": {"x_0": 0, "x_1": 0}}
    first = target(now, start, *later)
    assert first == {"a": {"x_0": 4, "x_1": 0}}
    last = target(now, first, *later)
    assert last == {"a": {"x_0": 5, "x_1": 0}}, "below the minimum, because it has to end"
    assert target(now, last, *later) == last


def test_available_now_leaves_a_queue_that_was_away_to_the_next_run() -> None:
    now = admission()
    now.end_at([state(0, 5)])
    start = {"a": {"x_0": 5, "x_1": 3}}
    back = now.target(start, [state(0, 5), state(0, 9, "x_1")], now_s=0)
    assert (plain(back.offsets), back.losses) == (start, [])


def test_available_now_ends_also_where_retention_takes_what_it_found() -> None:
    now = admission()
    now.end_at([state(0, 5)])
    found = now.target({"a": {"x_0": 2}}, [state(8, 9)], now_s=0)
    assert plain(found.offsets) == {"a": {"x_0": 5}}
    assert len(found.losses) == 1


def test_available_now_is_at_its_end_where_it_begins_behind_what_it_found() -> None:
    """Messages arrived after the snapshot, before Spark asked for the latest offsets."""
    now = admission(startingOffsets="latest")
    now.end_at([state(0, 100), state(0, 5, "x_1")])
    start = {"a": {"x_0": 103, "x_1": 5, "x_2": 1}}
    found = now.target(start, [state(0, 105), state(0, 9, "x_1"), state(0, 2, "x_2")], now_s=0)
    assert (plain(found.offsets), found.losses) == (start, [])
    anew = now.target(start, [state(0, 50), state(0, 9, "x_1"), state(0, 2, "x_2")], now_s=0)
    assert [loss.queue for loss in anew.losses] == [("a", "x_0")], "this one is a new queue"


def test_many_tasks_share_the_large_queues() -> None:
    slices = [Slice("a", "x_0", 0, 10), Slice("a", "x_1", 0, 90), Slice("a", "x_2", 5, 5)]
    assert split(slices, 4) == [
        Slice("a", "x_0", 0, 10),
        Slice("a", "x_1", 0, 30),
        Slice("a", "x_1", 30, 60),
        Slice("a", "x_1", 60, 90),
    ]
    assert split(slices, 1) == split(slices, None) == slices[:2]
    assert split([Slice("a", "x_0", 7, 9)], 5) == [Slice("a", "x_0", 7, 8), Slice("a", "x_0", 8, 9)]
    assert split(slices, 2, 50) == [
        Slice("a", "x_0", 0, 10),
        Slice("a", "x_1", 0, 45),
        Slice("a", "x_1", 45, 90),
    ]
    assert len(split(slices, 4, 50)) == 4


# ---- tasks ---------------------------------------------------------------------------------------


def test_few_slices_have_a_task_each() -> None:
    slices = [Slice("b", "q", 0, 5), Slice("a", "q", 0, 1)]
    assert pack(slices, 2) == [(slices[1],), (slices[0],)]
    assert pack([], 2) == []


def test_many_slices_share_tasks_of_similar_size() -> None:
    slices = [Slice("t", f"q_{n:05}", 0, 1 + n % 7) for n in range(10_000)]
    tasks = pack(slices, 200)
    assert len(tasks) == 200
    assert sorted(part for task in tasks for part in task) == slices
    assert all(list(task) == sorted(task) for task in tasks)
    sizes = [sum(part.size for part in task) for task in tasks]
    assert max(sizes) - min(sizes) <= 7


def test_a_task_stays_below_its_maximum_even_if_there_are_more_tasks_then() -> None:
    slices = [Slice("t", f"q_{n}", 0, 4) for n in range(10)]
    tasks = pack(slices, 2, 8)
    assert [sum(part.size for part in task) for task in tasks] == [8] * 5
    assert len(pack([Slice("t", "q", 0, 9), Slice("t", "r", 0, 9)], 1, 5)) == 2
