"""The election of a master, for any faults: one lease, one master a term, no confirmed loss."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.broker.replicas.election_model import Model, Node, S
from tests.support.examples import examples

FAULTS = ("cut", "heal", "crash", "restart", "pause", "lossy", "append", "wipe")
faults = st.lists(
    st.tuples(st.sampled_from(FAULTS), st.integers(1, 5), st.integers(1, 90)), max_size=25
)


def meddle(model: Model, what: str, node: Node) -> None:
    if what == "cut":
        model.cut_off(node)
    elif what == "heal":
        model.heal_network()
    elif what == "crash":
        model.crash(node)
    elif what == "restart":
        if node.election is None:
            model.start(node)
    elif what == "pause":
        node.pause(model.now + model.rng.randint(1, 20) * S)
    elif what == "lossy":
        model.lose_messages()
    elif what == "wipe":
        # A majority may lose one disk until its replica has caught up again.
        if all(each.complete for each in model.nodes.values()):
            model.crash(node, wipe=True)
    elif what == "append":
        for each in model.nodes.values():
            model.append(each)


def heal(model: Model) -> None:
    model.heal_network()
    for node in model.nodes.values():
        node.pause(0)
        if node.election is None:
            model.start(node)


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32), size=st.sampled_from((3, 3, 3, 5)), steps=faults)
# Without the order of a connection, an older copy of the log would arrive after a newer one here.
@example(seed=471, size=3, steps=[("append", 1, 2), ("cut", 2, 34)])
def test_no_fault_makes_two_masters_or_loses_a_confirmed_entry(
    seed: int, size: int, steps: list[tuple[str, int, int]]
) -> None:
    model = Model(seed, size=size)
    model.run(20)
    for what, number, tenths in steps:
        meddle(model, what, model.nodes[1 + number % size])
        model.run(tenths / 10)
    heal(model)
    model.run(60)
    before = len(model.confirmed)
    for _ in range(8):
        meddle(model, "append", model.nodes[1])
        model.run(3)
    assert len(model.confirmed) > before, "no master confirms anything after the faults"


@pytest.mark.parametrize("seed", range(8))
def test_a_dead_master_is_replaced_within_two_promises(seed: int) -> None:
    model = Model(seed)
    model.run(30)
    (master,) = model.lease_holders()
    model.crash(model.nodes[master])
    died, known = model.now, len(model.elected)
    model.run(40)
    at, _, successor = model.elected[known]
    assert successor != master
    assert (at - died) / S < 15


def test_the_first_election_needs_all_replicas() -> None:
    model = Model(1)
    model.crash(model.nodes[3])
    model.run(60)
    assert model.elected == []
    model.start(model.nodes[3])
    model.run(30)
    assert model.lease_holders()


def test_a_replica_that_lost_its_disk_does_not_decide() -> None:
    """The only other copy of the confirmed data may have been on the lost disk."""
    model = Model(2)
    model.run(30)
    (number,) = model.lease_holders()
    master = model.nodes[number]
    one, other = (n for n in model.nodes.values() if n is not master)
    model.crash(other)
    for _ in range(10):
        model.append(master)
    model.run(10)
    assert len(model.confirmed) > len(other.log)
    model.crash(one, wipe=True)
    model.crash(master)
    model.start(one)
    model.start(other)
    elected = len(model.elected)
    model.run(60)
    assert len(model.elected) == elected
    model.start(master)
    model.run(30)
    assert len(model.elected) > elected


def test_a_master_that_leaves_is_replaced_at_once() -> None:
    model = Model(3)
    model.run(30)
    (number,) = model.lease_holders()
    master, known = model.nodes[number], len(model.elected)
    assert master.election is not None
    left = model.now
    model.do(master, master.election.leave(model.clock(master)))
    model.run(20)
    at, _, successor = model.elected[known]
    assert successor != number
    assert (at - left) / S < 12


def test_a_replica_that_returns_interrupts_no_master() -> None:
    model = Model(4)
    model.run(30)
    (master,) = model.lease_holders()
    other = next(n for n in model.nodes if n != master)
    model.cut_off(model.nodes[other])
    model.run(60)
    elections = len(model.elected)
    model.heal_network()
    model.run(60)
    assert len(model.elected) == elections
