"""Why a queue reads nothing on, as its figures say it; to look changes nothing."""

from __future__ import annotations

from proxy.core.flow_window import Budget
from tests.support.messages import keyed
from tests.support.pipelines import Budgets, lease, pipeline, rules


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
    owned.room(demand=True)  # a client waits: the chain gives way
    assert owned.statistics().spilled > 0
