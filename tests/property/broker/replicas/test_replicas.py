"""Confirmations and votes of replicas, for any events in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.groups.lock_votes import granted, majority_of
from broker_core.broker.replicas.log_identity import LogIdentity
from broker_core.broker.replicas.replicas import Replicas
from broker_core.names import QueueName, Topic

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 50), st.just(0)),
        st.tuples(st.just("ack"), st.integers(1, 4), st.integers(0, 300)),
        st.tuples(st.just("leave"), st.integers(1, 4), st.just(0)),
    ),
    max_size=60,
)


@given(needed=st.integers(1, 4), steps=steps)
def test_confirmed_was_on_enough_replicas_and_never_goes_back(
    needed: int, steps: list[tuple[str, int, int]]
) -> None:
    replicas = Replicas(needed)
    end, held = 0, dict.fromkeys(range(1, 5), 0)  # the farthest position of each
    before = 0
    for what, number, offset in steps:
        if what == "append":
            end += number
        elif what == "ack":
            held[number] = max(held[number], min(offset, end))
            replicas.acked(number, min(offset, end))
        else:
            replicas.left(number)
        confirmed = replicas.confirm(end)
        assert before <= confirmed <= end
        on = 1 + sum(have >= confirmed for have in held.values())
        assert on >= needed or confirmed == 0
        before = confirmed


@given(needed=st.integers(1, 4), acks=st.lists(st.integers(0, 100), min_size=4, max_size=4))
def test_what_enough_connected_replicas_have_is_confirmed(needed: int, acks: list[int]) -> None:
    replicas = Replicas(needed)
    for number, offset in enumerate(acks, 1):
        replicas.acked(number, offset)
    assert replicas.available == 5
    assert replicas.confirm(100) == sorted([100, *acks])[-needed]


@given(
    total=st.integers(1, 7),
    votes=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=21),
)
def test_no_queue_is_granted_to_two(total: int, votes: list[tuple[str, int]]) -> None:
    """Each replica votes for one client per queue, for any requests."""
    tables: list[dict[int, str]] = [{} for _ in range(total)]
    for at, (client, queue) in enumerate(votes):
        tables[at % total].setdefault(queue, client)
    queues = [QueueName(Topic("t"), "b", number) for number in range(3)]
    won = {
        client: granted(
            [[queues[q] for q, whose in table.items() if whose == client] for table in tables],
            total_replicas=total,
        )
        for client in "ab"
    }
    assert not won["a"] & won["b"]
    assert 2 * majority_of(total) > total


def test_promotions_raise_the_epoch_and_old_masters_are_known() -> None:
    first = LogIdentity().started("master", fresh_id="log")
    assert (first.log_id, first.epoch, first.lock_grace) == ("log", 1, False)
    assert first.started("master", fresh_id="x") == first
    copy = LogIdentity(first.log_id, first.epoch, "slave")
    second = copy.started("master", fresh_id="x")
    assert (second.log_id, second.epoch, second.lock_grace) == ("log", 2, True)
    assert second.started("master", fresh_id="x") == second, "a crash does not end the grace"
    assert first.why_not("log", 2) is not None
    assert second.why_not("log", 1) is None
    assert second.why_not(None, 0) is None
    assert second.why_not("other", 1) is not None
    assert LogIdentity.from_table(second.to_table()) == second
    demoted = first.started("slave", fresh_id="x")
    assert (demoted.epoch, demoted.role) == (1, "slave")
    with pytest.raises(ValueError, match="expected logId"):
        LogIdentity.from_table({"epoch": "1"})
