"""R3: a parked key's messages go behind its head, and come back in order."""

from __future__ import annotations

from typing import Any

from tests.support.histories import LANE, Story

TWIN = {"queue": "broker-a_3p"}


class Parked(Story):
    """Key ``k`` has three messages: the first failed and was parked, and the others behind it."""

    def __init__(self, *, parked: int = 3) -> None:
        super().__init__()
        for offset in range(3):
            self.sent(offset, queue="broker-a_3")
        self.lane = {**LANE, "queue": "broker-a_3"}
        self.add("own+", **self.lane, epoch=1, owner="p")
        lease = self.deliver(0, queue="broker-a_3")
        self.verdict(0, lease, "broker-a_3", outcome="retry")
        self.about("park", reason="attempts used up")
        for offset in range(parked):
            self.finish(offset, outcome="parked", queue="broker-a_3", order="k")

    def about(self, event: str, **fields: Any) -> Story:
        return self.add(event, **self.lane, epoch=1, order="k", by="failure policy", **fields)

    def verdict(self, offset: int, lease: int, queue: str, *, outcome: str = "ok") -> Story:
        place = {**LANE, "queue": queue, "epoch": 1, "offset": offset}
        return self.add("ack_ok", **place, lease=lease, outcome=outcome)

    def redriven(self, *origins: int) -> Story:
        """Copies, each handed out, acked and finished before the next."""
        for origin in origins:
            lease = self.copy_out(origin)
            self.verdict(origin, lease, TWIN["queue"])
            self.finish(origin, **TWIN)
        return self

    def copy_out(self, origin: int) -> int:
        return self.deliver(origin, **TWIN, attempt=1, origin_offset=origin)

    def live(self, offset: int) -> Story:
        self.verdict(offset, self.deliver(offset, queue="broker-a_3"), "broker-a_3")
        return self.finish(offset, queue="broker-a_3")


def test_parked_and_redriven_in_order_is_clean() -> None:
    story = Parked()
    story.about("redrive", state="started")
    story.redriven(0, 1, 2)
    assert story.about("unpark").found() == set()


def test_what_stays_parked_is_not_lost() -> None:
    assert Parked().found() == set()


def test_r3_a_message_handed_out_although_its_key_is_parked() -> None:
    story = Parked(parked=2)
    assert story.live(2).found() == {"R3"}


def test_r3_parked_before_its_key_was() -> None:
    story = Parked()
    story.events = [event for event in story.events if event["e"] != "park"]
    assert "R3" in story.found()


def test_r3_copies_that_nobody_redrove() -> None:
    story = Parked()
    story.redriven(0, 1, 2)
    assert story.about("unpark").found() == {"R3"}


def test_r3_copies_out_of_order() -> None:
    """The redrive went on at the tail of the twin."""
    story = Parked()
    story.about("redrive", state="started")
    assert "R3" in story.redriven(2, 0, 1).found()


def test_r3_unparked_too_early() -> None:
    story = Parked(parked=2)
    story.about("redrive", state="started")
    story.redriven(0)
    story.about("unpark")
    story.live(2)
    assert "R3" in story.redriven(1).found()


def test_d1_a_copy_that_nobody_ever_redrives() -> None:
    story = Parked()
    story.about("redrive", state="started")
    story.redriven(0, 1)
    story.about("unpark")
    assert story.found() == {"R3", "D1"}


def test_a_copy_stored_twice_over_a_crash_may_come_twice() -> None:
    story = Parked()
    story.about("redrive", state="started")
    story.redriven(0, 1)
    for copy, origin in ((2, 1), (3, 2)):
        fields = {"attempt": 1, "origin_offset": origin, "msg": f"m{origin}"}
        story.verdict(copy, story.deliver(copy, **TWIN, **fields), TWIN["queue"])
        story.finish(copy, **TWIN)
    assert story.about("unpark").found() == set()
