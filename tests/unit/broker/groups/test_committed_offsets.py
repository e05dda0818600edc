from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.limits import Limit
from broker_core.errors import BrokerError
from broker_core.names import Group, Topic

GROUP, TOPIC = Group("billing"), Topic("orders")


def test_commits_are_kept_by_group_topic_and_queue() -> None:
    offsets = CommittedOffsets()
    assert offsets.committed(GROUP, TOPIC, 0) is None
    assert offsets.commit(GROUP, TOPIC, 0, 5) is None
    offsets.commit(GROUP, TOPIC, 1, 6)
    offsets.commit(Group("other"), TOPIC, 0, 7)
    offsets.commit(GROUP, TOPIC, 0, 3)
    assert offsets.committed(GROUP, TOPIC, 0) == 3
    assert offsets.committed(GROUP, TOPIC, 1) == 6
    assert offsets.change == 4


def test_offsets_are_cloned_all_or_none() -> None:
    offsets, refunds = CommittedOffsets(), Topic("refunds")
    for topic, queue_id in ((TOPIC, 0), (TOPIC, 1), (refunds, 0)):
        offsets.commit(GROUP, topic, queue_id, 5)
    copy = Group("copy")
    offsets.commit(copy, TOPIC, 0, 1)
    change = offsets.change
    offsets.limit_to(Limit("max_offsets", 5, advice="delete some"))
    with pytest.raises(
        BrokerError,
        match="the offset of group copy in 'orders' is not stored nor 1 more: this broker has 4"
        " committed offsets, its max_offsets",
    ):
        offsets.clone(GROUP, copy, {TOPIC, refunds})
    assert (offsets.committed(copy, TOPIC, 0), offsets.change) == (1, change)
    offsets.clone(GROUP, copy, {TOPIC})
    assert [offsets.committed(copy, TOPIC, each) for each in range(2)] == [5, 5]


def test_an_older_epoch_is_refused_and_named() -> None:
    offsets = CommittedOffsets()
    offsets.commit(GROUP, TOPIC, 0, 5, epoch=7)
    assert offsets.commit(GROUP, TOPIC, 0, 9, epoch=6) == 7
    assert offsets.committed(GROUP, TOPIC, 0) == 5
    assert offsets.commit(GROUP, TOPIC, 0, 6, epoch=7) is None
    assert offsets.commit(GROUP, TOPIC, 0, 4) is None  # commits without an epoch are not fenced
    assert offsets.commit(GROUP, TOPIC, 1, 1, epoch=0) is None
    assert offsets.committed(GROUP, TOPIC, 0) == 4


def test_a_deleted_group_leaves_nothing_and_others_keep_theirs() -> None:
    offsets = CommittedOffsets()
    other = Group(f"{GROUP}%a")
    for group in (GROUP, other):
        offsets.commit(group, TOPIC, 0, 5, epoch=9)
        offsets.commit(group, Topic("refunds"), 1, 6)
    change = offsets.change
    offsets.delete(GROUP)
    assert offsets.change > change, "or it would not be saved"
    assert offsets.committed(GROUP, TOPIC, 0) is None
    assert offsets.to_table() == {
        "offsetTable": {f"{TOPIC}@{other}": {"0": 5}, f"refunds@{other}": {"1": 6}},
        "epochTable": {f"{TOPIC}@{other}": {"0": 9}},
        "epochLifeTable": {},
        "deletions": 0,
    }
    assert offsets.commit(GROUP, TOPIC, 0, 1, epoch=0) is None, "its epochs start over"
    change = offsets.change
    offsets.delete(Group("unknown"))
    assert offsets.change == change


def test_forgotten_epochs_let_a_lower_one_in() -> None:
    """After a log lost its tail, the offsets of lost ownership records are used again."""
    offsets = CommittedOffsets()
    offsets.commit(GROUP, TOPIC, 0, 5, epoch=9)
    change = offsets.change
    offsets.forget_epochs()
    assert offsets.change > change
    assert offsets.commit(GROUP, TOPIC, 0, 6, epoch=3) is None
    assert offsets.commit(GROUP, TOPIC, 0, 7, epoch=2) == 3
    assert offsets.committed(GROUP, TOPIC, 0) == 6


def test_offsets_beyond_the_end_are_brought_back() -> None:
    offsets = CommittedOffsets()
    for queue_id, offset in enumerate((5, 10, 11)):
        offsets.commit(GROUP, TOPIC, queue_id, offset)
    (clamped,) = offsets.clamp(lambda topic, queue_id: 10)
    assert clamped == (GROUP, TOPIC, 2, 11, 10)
    assert offsets.committed(GROUP, TOPIC, 2) == 10


@pytest.mark.parametrize(
    "content", [{"offsetTable": 7}, {"offsetTable": {"t@g": 7}}, {"epochTable": {"t@g": {"x": 1}}}]
)
def test_a_broken_table_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a table of committed offsets"):
        CommittedOffsets.from_table(content)


commits = st.lists(
    st.tuples(
        st.sampled_from(["g1", "%g|2"]),
        st.sampled_from(["t1", "%RETRY%t"]),
        st.integers(0, 2),
        st.integers(0, 100),
        st.none() | st.integers(0, 3),
    )
)


@given(commits)
def test_epochs_never_fall_and_the_table_survives_being_saved(
    script: list[tuple[str, str, int, int, int | None]],
) -> None:
    offsets = CommittedOffsets()
    model: dict[tuple[str, str, int], int] = {}
    epochs: dict[tuple[str, str, int], int] = {}
    for group, topic, queue_id, offset, epoch in script:
        queue = (group, topic, queue_id)
        refused = epoch is not None and epoch < epochs.get(queue, 0)
        answer = offsets.commit(Group(group), Topic(topic), queue_id, offset, epoch=epoch)
        assert answer == (epochs[queue] if refused else None)
        if not refused:
            model[queue] = offset
            if epoch is not None:
                epochs[queue] = epoch
    loaded = CommittedOffsets.from_table(orjson.loads(orjson.dumps(offsets.to_table())))
    for (group, topic, queue_id), offset in model.items():
        assert loaded.committed(Group(group), Topic(topic), queue_id) == offset
    for (group, topic, queue_id), epoch in epochs.items():
        assert loaded.commit(Group(group), Topic(topic), queue_id, 0, epoch=epoch - 1) == epoch


def test_epochs_start_over_in_another_life_of_the_topic_that_they_are_offsets_of() -> None:
    table = CommittedOffsets()
    assert table.commit(GROUP, TOPIC, 0, 5, epoch=57, epoch_life=3) is None
    assert table.commit(GROUP, TOPIC, 0, 4, epoch=56, epoch_life=3) == 57
    assert table.commit(GROUP, TOPIC, 0, 6, epoch=2, epoch_life=9) is None
    table = CommittedOffsets.from_table(table.to_table())
    assert table.commit(GROUP, TOPIC, 0, 7, epoch=57, epoch_life=3) == 2, "its records are gone"
    assert table.commit(GROUP, TOPIC, 0, 7, epoch=1, epoch_life=9) == 2
    assert table.committed(GROUP, TOPIC, 0) == 6


def test_epochs_without_a_life_count_in_any() -> None:
    table = CommittedOffsets()
    assert table.commit(GROUP, TOPIC, 0, 5, epoch=5) is None
    assert table.commit(GROUP, TOPIC, 0, 5, epoch=4, epoch_life=9) == 5
    assert table.commit(GROUP, TOPIC, 0, 5, epoch=6, epoch_life=9) is None
    assert table.commit(GROUP, TOPIC, 0, 5, epoch=5) == 6
