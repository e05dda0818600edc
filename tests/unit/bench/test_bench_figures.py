"""Figures of benchmarks, computed from artificial events and samples."""

from __future__ import annotations

from typing import Any

import pytest

from bench import blackout, bulk, spark, spark_kafka, spark_planning, takeover
from bench.preload import Backlog
from bench.report import shown, spread
from bench.site import Usage
from bench.spark_comparison import OPERATIONS, Run

SECOND = 1_000_000_000


def delivery(node: str, queue: str, epoch: int, at_s: float) -> dict[str, Any]:
    return {"node": node, "queue": queue, "epoch": epoch, "t_ns": int(at_s * SECOND)}


def sample(t_s: float, others: int) -> dict[str, Any]:
    return {"t_s": t_s, "others": others}


def test_a_gap_is_from_the_last_of_the_old_owner_to_the_first_of_the_new_one() -> None:
    events = [
        delivery("other", "q0", 1, 1),
        delivery("victim", "q0", 2, 4),
        delivery("victim", "q0", 2, 5.5),  # it drained for a moment
        delivery("other", "q0", 3, 9),
        delivery("victim", "q1", 7, 4),
        delivery("other", "q1", 8, 6),
        delivery("other", "q2", 1, 4),  # never the victim's
        delivery("other", "q2", 1, 99),
    ]
    assert sorted(takeover.gaps_s(events, "victim", ended_ns=5 * SECOND)) == [2.0, 3.5]


def test_the_gap_of_a_queue_without_a_new_owner_ends_when_its_owner_continues() -> None:
    events = [delivery("victim", "q0", 2, at_s) for at_s in (1, 2, 22, 23)]
    assert list(takeover.gaps_s(events, "victim", ended_ns=3 * SECOND)) == [20.0]


def test_the_longest_pause_sees_a_second_one_and_none_before_the_end() -> None:
    events = [delivery("a", "q0", 2, at_s) for at_s in (1, 9, 11, 12, 17)]
    assert takeover.longest_pause_s(events, 10 * SECOND) == 5.0


def test_throughput_counts_without_a_tenth_at_both_ends() -> None:
    samples = [sample(0, 0), sample(1, 5), sample(2, 10), sample(6, 90), sample(60, 100)]
    span = blackout.Span.of(samples, 100)
    assert span is not None
    assert (span.messages, span.seconds) == (80, 4)
    assert blackout.Span.of([sample(0, 0), sample(9, 0)], 100) is None


def test_processor_time_is_that_of_the_same_span() -> None:
    usages = [Usage(t_s, 0, cpu_s) for t_s, cpu_s in ((0, 9.0), (2, 10.0), (4, 11.0), (7, 20.0))]
    assert blackout.cpu_s(usages, blackout.Span(1.5, 5.5, 10)) == pytest.approx(2.0)


def test_a_pause_is_between_two_handlings() -> None:
    samples = [sample(0, 0), sample(5, 0), sample(6, 1), sample(9, 1), sample(10, 2)]
    assert blackout.longest_pause_s(samples) == 4


def test_memory_grows_from_its_first_value_to_its_peak() -> None:
    usages = [Usage(0, resident, 0.0) for resident in (50, 40, 90, 60)]
    assert blackout.growth_bytes(usages) == 40


def test_a_ratio_is_to_the_free_arm_of_the_same_round() -> None:
    def run(arm: str, number: int, others_per_s: float) -> blackout.Run:
        return blackout.Run(arm, number, True, others_per_s, 9, 0, 0, 0, 0, 0, 0, None)

    runs = [run("free", 0, 100), run("stuck", 0, 90), run("stuck", 1, 30), run("free", 1, 20)]
    plan = blackout.Plan("embedded", ("free", "stuck"))
    free, stuck = blackout.summaries(plan, runs)
    assert free["ratio"] is None
    assert stuck["ratio"] == {"median": 1.2, "min": 0.9, "max": 1.5}


def test_a_blackout_that_did_not_end_is_no_number() -> None:
    summary: dict[str, Any] = {"finished": False, "blackout_s": spread([0.2])}
    assert blackout.shown_blackout(summary) == "for good"
    assert blackout.shown_blackout({**summary, "finished": True}) == "none"
    assert blackout.shown_blackout({"finished": True, "blackout_s": spread([0.2, 1.5])}) == "1.5"


def test_a_bulk_reader_is_judged_by_the_stretch_without_it_in_the_same_round() -> None:
    def run(
        load: str,
        arm: str,
        number: int,
        per_s: float,
        delay_ms: float | None = None,
        p99_ms: float | None = None,
        *,
        bulk_mb: float = 16.0,
    ) -> bulk.Run:
        return bulk.Run(load, arm, number, per_s, delay_ms, p99_ms, bulk_mb, 40_000, 0.5)

    runs = [
        run("full", "beside", 0, 90),
        run("full", "alone", 0, 100),
        run("full", "alone", 1, 10),
        run("full", "beside", 1, 10),
        run("paced", "alone", 0, 10, 2.0, 4.0),
        run("paced", "beside", 0, 10, 3.0, 9.0),
        run("sparse", "alone", 0, 5, 2.0, bulk_mb=0.0),
        run("sparse", "beside", 0, 5, 2.0, bulk_mb=30.0),
        run("sparse", "reader", 0, 0, bulk_mb=60.0),
    ]
    found = bulk.summaries(bulk.Plan("embedded"), runs)
    assert [(each["load"], each["arm"]) for each in found] == [
        *(("full", "alone"), ("full", "beside"), ("paced", "alone"), ("paced", "beside")),
        *(("sparse", "alone"), ("sparse", "beside"), ("sparse", "reader")),
    ]

    def figures(name: str) -> list[object]:
        return [each[name] for each in found]

    assert figures("per_s_ratio") == [
        *(None, spread([0.9, 1.0]), None, spread([1]), None, spread([1]), None)
    ]
    assert figures("delay_ratio") == [None, None, None, spread([1.5]), None, spread([1]), None]
    assert figures("added_p99_ms") == [None, None, None, spread([5.0]), None, None, None]
    assert figures("bulk_ratio") == [None, None, None, None, None, spread([0.5]), None]
    rows = bulk.rows(found)
    assert [row["delay of alone"] for row in rows] == ["", "", "", "1.50", "", "1.00", ""]
    assert [row["of reader"] for row in rows] == ["", "", "", "", "", "0.50", ""]


def test_a_percentile_needs_enough_delays() -> None:
    assert bulk.percentile_ms(list(range(99)), 0.99) is None
    assert bulk.percentile_ms([1000 * n for n in range(1, 101)], 0.99) == 99.0


def test_a_spread_is_shown_with_its_ends_if_it_has_some() -> None:
    assert shown(spread([1.0, 3.0, 2.0])) == "2.00 (1.00 to 3.00)"
    assert shown(spread([1234.0]), digits=0) == "1,234"


def test_each_queue_has_one_stuck_key_and_others_of_its_own() -> None:
    backlog = Backlog(6, 400, 0.1, keys=10, seed=1)
    keys = [list(backlog.keys_in(queue_id, 2)) for queue_id in (0, 1)]
    assert [len(each) for each in keys] == [203, 203]
    assert keys[0][:3] == ["stuck-0"] * 3
    assert not set(keys[0]) & set(keys[1])
    assert 5 < sum(map(backlog.is_stuck, keys[1][3:])) < 45
    assert keys == [list(backlog.keys_in(queue_id, 2)) for queue_id in (0, 1)], "seeded"


def test_sources_are_compared_within_a_round() -> None:
    """Other load on the machine slows all arms of a round."""
    per_s = {"orderlane": (300, 100), "tuples": (200, 100), "arrow": (600, 400)}
    runs = [
        spark.Run(arm, number, per_s=each, proxy_us=0.5)
        for arm, rounds in per_s.items()
        for number, each in enumerate(rounds)
    ]
    ours, tuples, arrow = spark.rows(spark.summaries(runs))
    assert ours["source"] == "orderlane"
    assert (ours["of tuples"], ours["of arrow"]) == ("1.25 (1.00 to 1.50)", "0.38 (0.25 to 0.50)")
    assert (tuples["of tuples"], arrow["of arrow"]) == ("1.00", "1.00")
    assert (ours["proxy CPU µs each"], arrow["proxy CPU µs each"]) == ("0.50", "")


def test_spark_with_kafka_is_held_against_its_bounds_by_rounds() -> None:
    """Medians of ratios count, not ratios of medians."""
    per_s = {
        ("read", "orderlane"): (400, 90, 300),
        ("read", "kafka"): (200, 100, 100),
        ("read", "memory"): (500, 100, 400),
        ("write", "orderlane"): (70, 90, 70),
        ("write", "kafka"): (100, 100, 100),
        ("archive", "orderlane"): (30, 30, 30),
        ("archive", "kafka"): (60, 60, 60),
    }
    runs = [
        Run(operation, arm, number, each, None if arm == "memory" else 2.5)
        for (operation, arm), rounds in per_s.items()
        for number, each in enumerate(rounds)
    ]
    summary = spark_kafka.summaries(runs)
    found = {(row["operation"], row["arm"]): row for row in spark_kafka.rows(summary)}
    assert list(found) == list(per_s)
    assert [set(row) for row in found.values()] == [set(spark_kafka.COLUMNS)] * len(per_s)
    read = found["read", "orderlane"]
    assert (read["of kafka"], read["of memory"]) == ("2.00 (0.90 to 3.00)", "0.80 (0.75 to 0.90)")
    assert (read["bound"], read["met"]) == ("0.8 of memory", "yes")
    assert found["read", "memory"]["gateway CPU µs"] == ""
    assert found["read", "memory"]["of memory"] == ""
    assert found["write", "orderlane"]["met"] == "no"
    archive = found["archive", "orderlane"]
    assert (archive["bound"], archive["met"]) == ("0.6 of memory", ""), "its arm was not measured"
    assert found["archive", "kafka"]["bound"] == ""


def test_each_bound_compares_arms_of_its_operation() -> None:
    for bound in spark_kafka.BOUNDS:
        assert {bound.arm, bound.to} <= set(OPERATIONS[bound.operation])


def test_planning_is_held_against_the_bounds_of_driver_and_gateway() -> None:
    plan = spark_planning.Plan("embedded", arms=("ranges", "batch", "next", "report"))
    runs = [
        spark_planning.Run(arm, number, 200, seconds, 0.5, gateway / 2, gateway / 2)
        for arm, seconds, gateway in (
            *(("ranges", 0.2, 0.1), ("batch", 2.1, 0.4)),
            *(("next", 1.0, 1.1), ("report", 9.0, 9.0)),
        )
        for number in range(3)
    ]
    rows = spark_planning.rows(spark_planning.summaries(plan, runs))
    assert [set(row) for row in rows] == [set(spark_planning.COLUMNS)] * 4
    assert [row["within"] for row in rows] == ["yes", "no", "no", ""]
    assert (rows[0]["queues"], rows[1]["seconds"]) == ("10,000", "2.100")
