"""The plan of ``make chaos``, and the figures that it reports."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.chaos.figures import figures_of
from tests.chaos.orders import Orders
from tests.chaos.schedule import KINDS, LANES, LONG_KINDS, TIMES, Fault, plan
from tests.chaos.torn import log_end, tear
from tests.chaos.watch import Tail
from tests.chaos.workload import HOT, POISONED, Sender, fails, plain_keys, share, work_s
from tests.support.histories import LANE, Story
from tools.chaos_reports import tables


def faults_of(seed: int, times: str = "default", seconds: float = 0) -> list[Fault]:
    return plan(seed, seconds=seconds, times=TIMES[times], proxies=3, clients=4)


@pytest.mark.parametrize("times", sorted(TIMES))
@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_every_kind_of_fault_and_stops_outlast_their_leases(
    seed: int, times: str
) -> None:
    faults = faults_of(seed, times)

    assert sorted(fault.kind for fault in faults) == sorted(KINDS)
    lease_s, expiry_s = TIMES[times].lease_s, TIMES[times].expiry_s
    assert all(fault.for_s > lease_s for fault in faults if fault.action in ("stop", "hold"))
    assert all(fault.for_s > expiry_s for fault in faults if fault.action == "sleep")


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert faults_of(7) == faults_of(7) != faults_of(8)


def long_plan(seconds: float) -> list[Fault]:
    kinds = (*KINDS, *LONG_KINDS)
    return plan(4, seconds=seconds, times=TIMES["default"], proxies=3, clients=12, kinds=kinds)


def test_in_a_long_run_every_kind_comes_alone_and_then_beside_others() -> None:
    faults = long_plan(1200)
    alone = [fault for fault in faults if fault.alone]
    together = [fault for fault in faults if not fault.alone]

    for part in (alone, together):
        assert {fault.kind for fault in part} == {*KINDS, *LONG_KINDS}
    assert all(a.at_s + a.for_s < b.at_s for a, b in itertools.pairwise(alone))
    assert alone[-1].at_s + alone[-1].for_s < together[0].at_s
    assert {fault.role for fault in faults} <= {role for lane in LANES for role in lane}
    overlaps = [b for a, b in itertools.pairwise(together) if b.at_s < a.at_s + a.for_s]
    assert len(overlaps) > len(together) / 2


def test_a_short_long_run_has_every_kind_too() -> None:
    faults = long_plan(60)

    assert {fault.kind for fault in faults} == {*KINDS, *LONG_KINDS}
    assert any(fault.alone for fault in faults)


@pytest.mark.parametrize("lane", [lane for lane in LANES if lane[0] not in ("clock", "load")])
def test_in_a_lane_one_fault_ends_before_the_next_begins(lane: tuple[str, ...]) -> None:
    mine = [fault for fault in faults_of(3, seconds=300) if fault.role in lane]

    assert len(mine) > len({fault.kind for fault in mine})
    assert all(a.at_s + a.for_s < b.at_s for a, b in itertools.pairwise(mine))
    assert mine[-1].at_s + mine[-1].for_s <= 300


def test_a_key_is_sent_by_one_sender_only() -> None:
    """With two senders the order of its messages would be unknown."""
    senders = [Sender(number, 12, 16) for number in range(12)]
    keys = [{body["key"] for body in itertools.islice(each.messages(1), 200)} for each in senders]

    assert sum(map(len, keys)) == len(set().union(*keys)) == 16
    assert {HOT, POISONED} <= set().union(*keys)


def test_poison_fails_until_it_is_cured_and_a_retry_as_often_as_it_says() -> None:
    poison, retry = {"plan": "poison"}, {"plan": "retry", "times": 1}

    assert fails(poison, attempt=9, cured=False)
    assert not fails(poison, attempt=1, cured=True)
    assert fails(retry, attempt=1, cured=False)
    assert not fails(retry, attempt=2, cured=False)


def test_repetitions_are_counted_by_the_end_of_the_lease_before() -> None:
    story = Story().own(1)
    story.ack(0, story.deliver(0), outcome="retry")
    story.expire(0, story.deliver(0))
    story.ack(0, story.deliver(0)).handle_end(0)
    story.own(2)
    story.deliver(0)
    figures = figures_of(story.events)

    crash = "crash or standstill of the owner"
    assert figures.repeats == {"retry": 1, "lease ended": 1, crash: 1}
    assert figures.duplicates == {crash: 1}


def test_a_take_over_lasts_from_the_fault_to_the_next_owners_first_hand_out() -> None:
    story = Story().add("own+", **LANE, epoch=1, owner="p")
    fault = {"what": "proxy.kill", "target": "proxy 0", "node_of_target": "n"}
    story.add("nemesis", **fault, phase="begin").own(2)
    story.deliver(0)
    for event, node, t_ns in zip(
        story.events, "nxmm", (0, 10**9, 4 * 10**9, 6 * 10**9), strict=True
    ):
        event.update(node=node, t_ns=t_ns)

    take_over = figures_of(story.events).as_dict()["take_overs"]["proxy.kill"]
    assert take_over == {"queues": 1, "median_s": 5.0, "longest_s": 5.0}


def test_while_a_key_is_hot_nine_of_ten_sends_are_of_it(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "orders")
    first, other = (Sender(number, 12, 20) for number in (0, 3))

    orders.heat(on=True)
    shares = [share(number, hot=True) for number in range(12)]
    hot = [body["key"] for body in itertools.islice(first.messages(1, orders=orders), 50)]

    assert set(hot) == {HOT}
    assert HOT not in {b["key"] for b in itertools.islice(other.messages(1, orders=orders), 50)}
    assert shares[0] == 0.9
    assert sum(shares[1:]) / 11 == pytest.approx(0.1)
    orders.heat(on=False)
    assert {HOT} < {b["key"] for b in itertools.islice(first.messages(1, orders=orders), 200)}


def test_a_poisoned_key_fails_until_the_poison_is_taken_back(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "orders")
    sender, key = Sender(0, 12, 20), plain_keys(20)[0]
    orders.poison(key, on=True)

    bodies = list(itertools.islice(sender.messages(1, orders=orders), 100))
    poisoned = [body for body in bodies if body["key"] == key]

    assert poisoned
    assert all(fails(body, attempt=9, cured=orders.cured(body)) for body in poisoned)
    assert all(body["do"] == "retry" for body in poisoned)  # to clients of other languages
    orders.poison(key, on=False)
    assert not any(fails(body, attempt=1, cured=orders.cured(body)) for body in poisoned)


def test_slow_handlers_are_those_of_one_client_until_all_is_cured(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "orders", slow_handlers_s=4.0)
    orders.slow(1, on=True)
    orders.gather(on=True)

    assert orders.slow_s("ddmq-java-1-17") == 4.0
    assert orders.slow_s("thin-11-17") == 0.0
    assert orders.together
    orders.cure()
    assert orders.slow_s("ddmq-java-1-17") == 0.0
    assert not orders.together
    assert work_s({"work_ms": 7000}, cured=True) < 1


def test_a_torn_end_begins_behind_the_last_whole_message(tmp_path: Path) -> None:
    messages = [(n + 8).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + b"x" * n for n in (5, 90)]
    whole = b"".join(messages)
    path = tmp_path / "00000000000000000000"
    for seed in range(20):
        path.write_bytes(whole + bytes(1000))
        written = tear(tmp_path, str(seed))
        content = path.read_bytes()

        assert content.startswith(whole)
        assert written > 0
        assert len(content) == len(whole) + 1000
        assert content[len(whole) + written :].strip(b"\0") == b""
    assert log_end(whole + bytes(100)) == (len(whole), messages[1])


def test_histories_are_followed_in_the_order_of_time_and_late_lines_counted(tmp_path: Path) -> None:
    def line(node: str, t_ns: int) -> bytes:
        return orjson.dumps({"e": "x", "t_ns": t_ns, "node": node}) + b"\n"

    tail = Tail(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(line("a", 1) + line("a", 5) + line("a", 9)[:7])
    (tmp_path / "b.jsonl").write_bytes(line("b", 3))

    assert [event["t_ns"] for event in tail.until(4)] == [1, 3]
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(line("a", 9)[7:])
    (tmp_path / "c.jsonl").write_bytes(line("c", 2) + line("c", 7))
    assert [event["t_ns"] for event in tail.until(9)] == [5, 7, 9]
    assert tail.late == 1
    tail.close()


def test_the_tables_of_kept_runs_add_up() -> None:
    def report(seed: int, broker: str, median_s: float) -> dict[str, Any]:
        return {
            "broker": broker,
            "seed": seed,
            "date": "2026-01-02",
            "seconds": 600.0,
            "faults": {"proxy.kill": 3, "load.hot": 1},
            "verdict": {
                **dict.fromkeys(("acknowledged", "deliveries", "duplicates"), 1200),
                "lost": 0,
                "violations": 0,
            },
            "figures": {
                "longest_gap_s": 4.5,
                "duplicates_by_cause": {"lease ended": 2},
                "take_overs": {"proxy.kill": {"median_s": median_s, "longest_s": 9.0}},
            },
        }

    made = tables([report(1, "embedded", 4.0), report(2, "embedded", 5.0), report(1, "5.3.3", 6.0)])

    assert (
        "| embedded | 2 | 2026-01-02 | 10 | 4 | 1,200 | 0 | 1,200 | 1,200 | 4.5 | 0 |"
        in (made["chaos-runs"])
    )
    assert (
        "| `proxy.kill` | 6 | 4.0 to 5.0, longest 9.0 | 3 | 6.0, longest 9.0 |"
        in (made["chaos-faults"])
    )
    assert "| lease ended | 4 | 2 |" in made["chaos-repeats"]
