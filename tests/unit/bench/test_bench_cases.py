"""The benchmark cases: their registry is complete, and their programs do equal work."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import uvloop

from bench.cases.registry import CASES
from bench.exact_sleep import ExactSleep
from bench.frame.case import Case, NotHere
from bench.frame.context import RunContext
from bench.frame.peer import Work
from bench.handling_record import HandlingRecord
from bench.ideal import ideal
from bench.in_process import consume, messages_of
from bench.peers.registry import PEERS
from bench.preload import Backlog
from bench.slow_work import SlowWork


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_case_names_existing_arms_and_points(case: Case) -> None:
    for shape in (case.short, case.full):
        assert set(shape.points) <= set(case.points)
        assert set(shape.peers) <= set(case.peers if case.work is None else PEERS)
        assert set(shape.judged) <= set(shape.sizes)
    assert case.full.rounds >= 5
    assert case.short.rounds >= 3
    columns = [*case.columns, *(plot.column for plot in case.plots)]
    assert {column.to for column in columns} <= {"", *case.arms, *PEERS}
    assert {column.at for column in columns} <= {None, *case.points}


def test_peers_drain_only_at_the_batch_that_they_are_set_to(tmp_path: Path) -> None:
    drain = CASES["drain"]
    assert drain.work is not None
    context = RunContext(tmp_path, seed=1, round=0, scale="full", sizes=drain.full.sizes)
    for point in drain.points:
        if point == 256:
            assert drain.work(context, point).batch == 256
        else:
            with pytest.raises(NotHere):
                drain.work(context, point)


def test_a_sweep_has_enough_messages_where_they_take_no_time(tmp_path: Path) -> None:
    """100,000, or 20,000 in short form, or the capacity of the handlers in 0.6 s, whichever is
    least.
    """
    sweep = CASES["sweep"]
    assert sweep.work is not None
    for shape, enough in ((sweep.short, 20_000), (sweep.full, 100_000)):
        context = RunContext(tmp_path, seed=1, round=0, scale="", sizes=shape.sizes)
        for point in sweep.points:
            work = sweep.work(context, point)
            ceiling = 64 * 1000 / work.work_ms if work.work_ms else 1e9
            assert work.messages >= min(enough, ceiling * 0.6), point
    assert {1, 2, 5} <= set(sweep.points)


def test_fewer_keys_than_queues_leave_queues_empty() -> None:
    backlog = Backlog(stuck=0, mixed=100, share=0.0, keys=3, seed=1)
    counts = [len(list(backlog.bodies(queue_id, 8))) for queue_id in range(8)]
    assert counts == [34, 33, 33, 0, 0, 0, 0, 0]


def test_what_comes_early_again_or_at_the_same_time_is_a_fault(tmp_path: Path) -> None:
    handled = HandlingRecord(tmp_path / "count", 10)
    handled.begin("a", 3)
    handled.begin("b", 0)
    assert handled.faults == 0
    handled.begin("a", 3)
    handled.begin("a", 2)
    assert handled.faults == 2
    handled.hold("b")
    handled.begin("b", 1)
    assert handled.faults == 3
    handled.let_go("b")
    handled.begin("b", 2)
    assert handled.faults == 3


def test_the_steady_stretch_is_without_begin_and_end(tmp_path: Path) -> None:
    handled = HandlingRecord(tmp_path / "count", 100)
    handled.begin("a", 0)
    time.sleep(0.01)
    for _ in range(20):
        handled.end(5)
    figures = handled.figures()
    assert figures["seconds"] >= 0.01, "the first message counts from the begin of its handler"
    assert figures["per_s"] == pytest.approx(100 / figures["seconds"])
    assert figures["steady_per_s"] > 0


def test_work_is_spread_evenly_and_the_same_for_a_message() -> None:
    backlog = Backlog(stuck=0, mixed=4_000, share=0.0, keys=50, seed=1)
    bodies = [body for _, body in backlog.bodies(0, 1)]
    lasts = SlowWork(1, 0.0, 5.0)
    times = [lasts.seconds(body) for body in bodies]
    assert times == [lasts.seconds(body) for body in bodies]
    assert 0 <= min(times) < 0.0002 < 0.0048 < max(times) < 0.005
    assert sum(times) / len(times) == pytest.approx(0.0025, rel=0.03)
    assert SlowWork(1, 20.0, 20.0).seconds(b"") == 0.02


def test_sleep_lasts_no_shorter_and_ends_in_order() -> None:
    ended: list[float] = []

    async def nap(sleep: ExactSleep, seconds: float) -> None:
        began_s = time.monotonic()
        await sleep(seconds)
        assert time.monotonic() - began_s >= seconds
        ended.append(seconds)

    async def run() -> None:
        sleep = ExactSleep(asyncio.get_running_loop())
        await asyncio.gather(*(nap(sleep, seconds) for seconds in (0.4, 0.2, 0.0)))
        await nap(sleep, 0.0001)  # not beside the one of 0.0: a machine may be slower than both
        sleep.close()

    uvloop.run(run())
    assert ended == [0.0, 0.2, 0.4, 0.0001]


@pytest.mark.parametrize("order_key", ["KEY", "QID", None])
def test_the_core_alone_hands_out_everything_in_order(
    tmp_path: Path, order_key: str | None
) -> None:
    work = Work(messages=200, keys=7, queues=1, work_ms=0.2, least_work_ms=0.0, concurrency=16)
    handled = HandlingRecord(tmp_path / "count", work.messages)
    uvloop.run(consume(work, handled, messages_of(work), order_key))
    assert handled.count == work.messages
    assert order_key is None or not handled.faults


def test_the_ideal_is_bound_by_handlers_and_by_the_longest_chain() -> None:
    many = Work(messages=4_000, keys=1_000, work_ms=20, concurrency=64)
    found = ideal(many)
    assert 0.9 < float(found["seconds"]) ** -1 * 4_000 * 0.020 / 64 < 1
    assert float(found["steady_per_s"]) == pytest.approx(64 / 0.020, rel=0.02)
    one = ideal(Work(messages=100, keys=1, work_ms=20, concurrency=64))
    assert one["seconds"] == pytest.approx(2.0)
    free = ideal(Work(messages=128, keys=1, work_ms=20, concurrency=64), order_key=None)
    assert free["seconds"] == pytest.approx(0.04)
    queue = ideal(Work(messages=100, keys=9, queues=1, work_ms=1, concurrency=9), order_key="QID")
    assert queue["seconds"] == pytest.approx(0.1)
