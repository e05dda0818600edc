from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.names import Group, QueueName, Topic

EXPIRY = 10
GROUP = Group("g")
QUEUES = [QueueName(Topic("t"), "b", n) for n in range(2)]

steps = st.lists(
    st.tuples(
        st.sampled_from(["lock", "lock", "lock", "unlock", "expire", "crash"]),
        st.sampled_from(["one", "two", "three"]),
        st.sets(st.sampled_from(QUEUES), min_size=1),
        st.integers(0, 8),  # time that passes before
        st.booleans(),  # whether the save of this step reaches the disk
    ),
    max_size=40,
)


@given(steps)
def test_no_two_clients_are_granted_a_queue(
    script: list[tuple[str, str, set[QueueName], int, bool]],
) -> None:
    """The model: the client whose grant was *answered* last, and the end of its trust."""
    locks = QueueLocks(EXPIRY)
    disk, saved = locks.to_table(), 0
    believed: dict[QueueName, tuple[str, int]] = {}
    now = 0
    for verb, client, queues, passed, reaches_disk in script:
        now += passed
        if verb == "lock":
            grant = locks.lock(GROUP, client, queues, now_ns=now)
            if grant.to_save > saved and reaches_disk:
                disk, saved = locks.to_table(), locks.change
            if grant.to_save <= saved:  # otherwise it is not answered
                for queue in grant.queues:
                    holder, until = believed.get(queue, (client, 0))
                    assert holder == client or until < now
                    believed[queue] = (client, now + EXPIRY)
        elif verb == "unlock":
            for queue in queues:
                if believed.get(queue, ("", 0))[0] == client:
                    del believed[queue]
            locks.unlock(GROUP, client, queues)
        elif verb == "expire":
            locks.expire(now)
        else:
            locks = QueueLocks.from_table(disk, expiry_ns=EXPIRY, now_ns=now)
            saved = locks.change
        for queue, (holder, until) in believed.items():
            if now <= until:
                assert locks.holder(GROUP, queue, now_ns=now) == holder


@given(steps)
def test_grants_without_crashes_follow_the_plain_rule(
    script: list[tuple[str, str, set[QueueName], int, bool]],
) -> None:
    locks = QueueLocks(EXPIRY)
    held: dict[QueueName, tuple[str, int]] = {}
    now = 0
    for verb, client, queues, passed, _ in script:
        now += passed
        if verb == "lock":
            expected = set()
            for queue in queues:
                holder, renewed = held.get(queue, (client, now))
                if holder == client or now - renewed > EXPIRY:
                    held[queue] = (client, now)
                    expected.add(queue)
            assert locks.lock(GROUP, client, queues, now_ns=now).queues == expected
        elif verb == "unlock":
            locks.unlock(GROUP, client, queues)
            for queue in queues:
                if held.get(queue, ("", 0))[0] == client:
                    del held[queue]
        elif verb == "expire":
            locks.expire(now)
            held = {q: (h, r) for q, (h, r) in held.items() if now - r <= EXPIRY}
