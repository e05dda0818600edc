"""Q1: the deliveries of all owners together respect the rate limits."""

from __future__ import annotations

from typing import Any

from proxy.history.check import HistoryChecker
from tests.support.history_parts import counted, judge_in_parts

NS = 1_000_000_000


class Run:
    """Owners of queues that deliver; each message has its own key."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now_ns = 0
        self._offset = -1

    def add(self, what: str, node: str, **fields: Any) -> Run:
        self.events.append(
            {"e": what, "t_ns": self.now_ns, "node": node, "group": "g", "topic": "orders"} | fields
        )
        return self

    def wait(self, seconds: float) -> Run:
        self.now_ns += int(seconds * NS)
        return self

    def rate(self, node: str, limit: float | None, topic: str | None = "orders") -> Run:
        return self.add("rate", node, topic=topic, max_rate=limit)

    def own(self, node: str, queue: str, epoch: int = 1) -> Run:
        return self.add("own+", node, queue=queue, epoch=epoch, owner=node)

    def deliver(
        self, node: str, queue: str, count: int = 1, *, epoch: int = 1, **fields: Any
    ) -> Run:
        for _ in range(count):
            self._offset += 1
            message = f"m{self._offset}"
            self.add("send", node, msg=message, key=message)
            self.add("send_ok", node, msg=message, key=message, queue=queue, offset=self._offset)
            lease = {"queue": queue, "epoch": epoch, "lease": self._offset, "offset": self._offset}
            about = {"msg": message, "order": message, "consumer": "c", "attempt": 1}
            self.add("deliver", node, **lease, **about, **fields)
        return self

    def found(self) -> int:
        """Return the number of excess deliveries; judged whole and in parts."""
        checker = HistoryChecker()
        for event in self.events:
            checker.on_event(event)
        report = checker.report()
        assert counted(report) == counted(judge_in_parts(self.events))
        violation = report.violations.get("Q1")
        return 0 if violation is None else violation.count


def two_owners(limit: float | None = 10) -> Run:
    run = Run().rate("p", limit).rate("q", limit)
    return run.own("p", "a_0").own("q", "a_1").wait(1)


def test_a_second_s_worth_and_a_message_for_each_owner_may_come_at_once() -> None:
    assert two_owners().deliver("p", "a_0", 6).deliver("q", "a_1", 6).found() == 0
    assert two_owners().deliver("p", "a_0", 6).deliver("q", "a_1", 9).found() == 3


def test_the_rate_holds_in_any_window() -> None:
    run = two_owners()
    for _ in range(50):
        run.deliver("p", "a_0").wait(0.1)
    assert run.deliver("q", "a_1", 12).found() == 0
    for _ in range(50):
        run.deliver("p", "a_0").deliver("q", "a_1").wait(0.1)
    assert run.found() == 51


def test_unused_rate_is_not_saved_up() -> None:
    assert two_owners().deliver("p", "a_0", 12).wait(100).deliver("p", "a_0", 13).found() == 1


def test_a_queue_that_changes_its_owner_brings_no_burst() -> None:
    run = two_owners().deliver("p", "a_0", 12)
    run.add("own-", "p", queue="a_0", epoch=1, reason="handed over")
    assert run.wait(0.1).own("q", "a_0", epoch=2).deliver("q", "a_1", 2).found() == 1


def test_the_limit_of_a_group_counts_all_its_topics() -> None:
    run = Run().rate("p", 10, topic=None).own("p", "a_0").own("p", "a_0p").wait(1)
    run.add("own+", "p", topic="bills", queue="a_0", epoch=1, owner="p")
    run.deliver("p", "a_0", 9)
    assert run.deliver("p", "a_0", 3, topic="bills").found() == 1


def test_a_limit_that_changes_at_one_owner_after_the_other() -> None:
    run = two_owners(10).deliver("p", "a_0", 12)
    run.rate("p", 100).wait(0.5)
    assert run.deliver("p", "a_0", 50).found() == 0
    run.rate("q", 100).rate("p", 1).rate("q", 1).wait(10)
    assert run.deliver("p", "a_0", 3).found() == 0
    assert run.deliver("p", "a_0", 3).found() == 3


def test_without_a_limit_at_one_of_them_nothing_is_judged() -> None:
    run = two_owners(10).rate("q", None)
    assert run.deliver("p", "a_0", 100).found() == 0
    assert two_owners(None).deliver("p", "a_0", 100).found() == 0


def test_the_time_of_the_decision_counts() -> None:
    run = two_owners().deliver("p", "a_0", 12).wait(1)
    decided = {"at_ns": run.now_ns}
    run.wait(1.5).deliver("q", "a_1", 10)
    assert run.deliver("p", "a_0", 10, **decided).found() == 0
    assert run.deliver("p", "a_0", 10, at_ns=run.now_ns - NS).found() > 0


def test_events_of_one_process_count_in_the_order_of_its_history() -> None:
    """A change is recorded after it was made; the next delivery may be decided at that time."""
    run = two_owners(10).deliver("p", "a_0", 12)
    made = {"at_ns": run.now_ns}
    run.now_ns += 5
    run.rate("p", None).rate("q", None)
    assert run.deliver("p", "a_0", 50, **made).found() == 0
    assert run.deliver("q", "a_1", 50, at_ns=run.now_ns - 2).found() == 0


def test_nothing_is_due_while_a_limit_may_hold_it_back() -> None:
    """Otherwise N3 would be violated."""
    run = Run().rate("p", 0.001).own("p", "a_0")
    run.add("pull_wait", "p", topics=None, consumer="c")
    run.add("send", "s", msg="m", key="k").add("send_ok", "s", msg="m", queue="a_0", offset=0)
    run.events[1] |= {"visibility_ms": 5000, "order_key": "KEY", "retry_ms": [1]}
    run.wait(500)._offset = 0
    run.deliver("p", "a_0")
    assert run.found() == 0


def test_a_limit_of_a_killed_process_does_not_apply_to_the_next_one() -> None:
    run = Run().rate("p", 10).own("p", "broker-a_0").wait(1).add("start", "p").wait(1)
    assert run.own("p", "broker-a_0", 2).deliver("p", "broker-a_0", 100, epoch=2).found() == 0


def test_the_next_process_has_its_own_limit() -> None:
    run = Run().rate("p", 10).own("p", "broker-a_0").wait(1).add("start", "p").wait(1)
    run.rate("p", 5).own("p", "broker-a_0", 2)
    assert run.deliver("p", "broker-a_0", 7, epoch=2).found() == 1


def test_messages_are_due_again_once_a_process_without_a_limit_serves() -> None:
    """N3, although the previous process had one."""
    run = Run().rate("p", 10).add("start", "p").own("p", "broker-a_0")
    run.add("pull_wait", "p", topics=None, consumer="c")
    checker = HistoryChecker()
    rules = {"visibility_ms": 5000, "order_key": "KEY"}
    run.events[2] |= rules
    run.deliver("p", "broker-a_0").wait(60)
    run.events[-1] |= {"t_ns": run.now_ns, "at_ns": run.now_ns}
    for event in run.events:
        checker.on_event(event)
    assert "N3" in checker.report().violations
