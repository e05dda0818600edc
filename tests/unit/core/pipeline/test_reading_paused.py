"""Reasons why a queue's reading is paused, in its figures; reading the figures changes nothing."""

from __future__ import annotations

import gc
import tracemalloc
import zlib

import pytest

from broker_core.remoting.message import decode_messages
from proxy.core.jobs.window import Budget
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from testkit.messages import keyed, message, record
from testkit.pipelines import Budgets, lease, pipeline, rules


def test_a_full_window_pauses_reading_until_something_has_left() -> None:
    owned = pipeline(rules(max_jobs=8), messages=[keyed(n, f"k{n}") for n in range(8)])
    assert owned.statistics().reading_paused == "jobs"
    (each,) = lease(owned, 1)
    owned.settle(acked=[each.lease_id], now_ns=0)
    assert owned.statistics().reading_paused == ""


def test_memory_of_the_process_pauses_reading() -> None:
    budgets = Budgets(memory=Budget(3))
    owned = pipeline(budgets=budgets, messages=[keyed(n, f"k{n}") for n in range(4)])
    assert owned.statistics().reading_paused == "memory"


def test_a_queue_of_one_chain_reads_to_half_of_its_window() -> None:
    owned = pipeline(rules("QID", max_jobs=8), messages=[keyed(n, "k") for n in range(4)])
    assert owned.statistics().reading_paused == "jobs"


def test_to_look_spills_nothing() -> None:
    owned = pipeline(
        rules(max_jobs=8, max_jobs_per_key=1), messages=[keyed(n, "k") for n in range(4)]
    )
    for _ in range(2):
        assert (owned.statistics().spilled, owned.statistics().reading_paused) == (0, "")
    owned.room(demand=True)  # a client waits: the chain is spilled
    assert owned.statistics().spilled > 0


def test_with_memory_full_a_queue_reads_on_only_while_it_has_nothing_to_offer() -> None:
    budgets = Budgets(memory=Budget(3_000))
    owned = pipeline(budgets=budgets)
    budgets.memory.take(3_000)  # by another queue
    owned.on_messages([keyed(n, f"k{n}") for n in range(3)], next_offset=3)
    assert (owned.position, owned.ready) == (1, 1), "one, because no other is ready"
    assert owned.room(demand=True) == 0
    lease(owned)
    room = owned.room(demand=True)
    assert room > 0
    owned.on_messages([keyed(1, "k0"), keyed(2, "k2"), keyed(3, "k3")], next_offset=4)
    assert (owned.position, owned.ready) == (3, 1)
    assert owned.statistics().spilled == 1, "behind the one that is out"


def test_with_memory_full_a_queue_that_is_paused_reads_one_message_at_most() -> None:
    budgets = Budgets(memory=Budget(3_000))
    owned = pipeline(budgets=budgets)
    owned.pause(EVERYTHING, PausedKey(0))
    budgets.memory.take(3_000)
    for _ in range(3):
        some = [keyed(n, f"k{n}") for n in range(owned.position, owned.position + 3)]
        owned.on_messages(some, next_offset=some[-1].queue_offset + 1)
    assert owned.position == 1


def test_properties_and_keys_count_as_memory() -> None:
    budgets = Budgets()
    plain = message(0, body=b"xyz", key="k")
    long = message(1, body=b"xyz", key="k", colour="x" * 30_000)
    pipeline(budgets=budgets, messages=[plain])
    before = budgets.memory.used
    pipeline(budgets=budgets, messages=[long])
    assert budgets.memory.used - 2 * before == len(b"colour\x01\x02") + 30_000


def test_a_body_that_was_compressed_counts_as_it_is_held() -> None:
    budgets = Budgets()
    packed = zlib.compress(b"x" * 100_000)
    pipeline(budgets=budgets, messages=[message(0, body=packed, key="k", sys_flag=1)])
    assert budgets.memory.used > 100_000


@pytest.mark.parametrize(
    ("body_bytes", "property_bytes", "keys"),
    [(10, 0, 100), (200, 0, 1_000), (5_000, 0, 1_000), (10, 3_000, 1_000)],
)
def test_counted_memory_matches_the_process(
    body_bytes: int, property_bytes: int, keys: int
) -> None:
    long = {"long": "y" * property_bytes} if property_bytes else {}
    wire = b"".join(
        record(message(n, body=b"x" * body_bytes, key=f"key-{n % keys}", **long))
        for n in range(1_000)
    )
    budgets = Budgets()
    owned = pipeline(rules(max_jobs=5_000), budgets=budgets)
    gc.collect()
    tracemalloc.start()
    try:
        owned.on_messages(decode_messages(wire), next_offset=1_000)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.85 < held / budgets.memory.used < 1.2
