"""Which sends of a pipelining producer go out together, and which wait."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from thin_client.delivery import Delivery, Outgoing, Stamp, deliveries
from thin_client.errors import ConnectionLost, SendFailed
from thin_client.send_pipeline import MOST_TOGETHER, Pause, Send, SendPipeline
from thrift_idl import producer

S = 1_000_000_000
DEADLINE_NS = 10 * S
STAMP = Stamp(None, lambda properties: None, lambda: 0.0)


def requests_of(*messages: Outgoing) -> list[Delivery]:
    return deliveries(messages, deadline_ns=DEADLINE_NS, stamp=STAMP)


@dataclass
class Site:
    """A pipeline and the outcome of each send, by its name."""

    pipeline: SendPipeline = field(default_factory=SendPipeline)
    outcomes: dict[str, Exception | None] = field(default_factory=dict)
    names: dict[Send, str] = field(default_factory=dict)
    taken: list[Send] = field(default_factory=list)

    def add(self, *names: str, body: bytes | None = None) -> None:
        """Add sends named by key and number: ``k1``; ``-1`` has no key, ``/1`` goes to a queue."""
        for name in names:
            key = None if name[0] in "-/" else name[0]
            queue = 1 if name[0] == "/" else None
            self.send(name, Outgoing("orders", body or name.encode(), key=key, queue=queue))

    def send(self, name: str, *messages: Outgoing) -> Send:
        def ended(error: Exception | None) -> None:
            self.outcomes[name] = error

        made = self.pipeline.add(self.pipeline.enter(), requests_of(*messages), ended)
        self.names[made] = name
        return made

    def take(self, now_ns: int = 0) -> list[str]:
        self.taken = self.pipeline.take(now_ns)
        return [self.names[send] for send in self.taken]

    def answer(self, *codes: int, whole: int | None = None, now_ns: int = 0) -> list[Pause]:
        """Answer the taken sends with a code each, or one for the whole request."""
        if whole is None and len(codes) > 1 and any(codes):
            results = [producer.MessageResult(code=code, msg=f"code {code}") for code in codes]
            answer = producer.Result(code=max(codes), msg="some failed", messages=results)
        else:
            answer = producer.Result(code=codes[0] if whole is None else whole, msg="whole")
        return self.pipeline.answered(self.taken, answer, now_ns=now_ns, jitter=lambda: 0.5)

    def lose(self, *, sent: bool) -> list[Pause]:
        error = ConnectionLost("cut off")
        return self.pipeline.lost(self.taken, error, sent=sent, now_ns=0, jitter=lambda: 0.5)

    def failed(self, name: str) -> SendFailed:
        error = self.outcomes[name]
        assert isinstance(error, SendFailed)
        return error


def test_sends_of_all_keys_share_a_request_each_key_in_order() -> None:
    site = Site()
    site.add("a1", "b1", "a2", "-1", "a3")
    assert site.take() == ["a1", "a2", "a3", "b1", "-1"]
    assert site.take() == []
    site.pipeline.answered(
        [*site.names], producer.Result(code=0, msg="OK"), now_ns=0, jitter=lambda: 0.5
    )
    assert set(site.outcomes.values()) == {None}
    assert site.pipeline.idle


def test_the_next_send_of_a_key_waits_for_the_answer_and_others_do_not() -> None:
    site = Site()
    site.add("a1")
    assert site.take() == ["a1"]
    first = site.taken
    site.add("a2", "b1", "/1", "/2")
    assert site.take() == ["b1", "/1", "/2"]
    site.taken = first
    site.answer(0)
    assert site.take() == ["a2"]


def test_a_batch_is_a_request_of_its_own_and_waits_for_all_its_keys() -> None:
    site = Site()
    site.add("a1", "b1")
    site.send("batch", *[Outgoing("orders", b"x", key=key) for key in "abc"])
    site.add("c2", "d1")
    assert site.take() == ["a1", "b1", "d1"]
    assert site.pipeline.take(0) == []
    site.answer(0)
    assert site.take() == ["batch"]
    site.answer(0)
    assert site.take() == ["c2"]


def test_messages_and_bytes_of_a_request_are_bounded() -> None:
    site = Site()
    site.add(*[f"{key}{number}" for number in range(MOST_TOGETHER) for key in "ab"])
    assert len(site.take()) == MOST_TOGETHER
    site = Site()
    site.add("a1", "b1", "c1", body=bytes(200_000))
    assert site.take() == ["a1", "b1"]
    assert site.take() == ["c1"]


def test_what_is_retried_keeps_its_order_and_travels_apart() -> None:
    site = Site()
    site.add("a1", "a2", "b1")
    site.take()
    ((paused, pause_s),) = site.answer(12, 70, 0)  # a2 follows a1, so a1 alone is resumed
    assert site.names[paused] == "a1"
    assert 0 < pause_s < 1
    assert site.outcomes == {"b1": None}
    site.add("a3", "c1")
    assert site.take() == ["c1"]
    site.pipeline.resume(paused)
    site.add("d1")
    assert site.take() == ["a1", "a2"]
    again = site.taken
    assert site.take() == ["d1"]
    site.taken = again
    site.answer(0)
    assert site.take() == ["a3"]


def test_what_was_made_before_a_failure_of_its_key_fails_and_later_sends_go() -> None:
    site = Site()
    site.add("k1")
    site.take()
    site.add("k2", "o1")
    assert site.answer(14) == []
    assert site.take() == ["o1"]
    site.add("k3")
    assert site.take() == ["k3"]
    assert site.failed("k1").code == 14
    assert "an earlier send of its key failed" in str(site.failed("k2"))
    assert not site.failed("k2").outcome_unknown


def test_a_send_behind_a_failed_one_in_its_request_fails_too() -> None:
    """It may have been stored if the answer was lost before; then the error says so."""
    site = Site()
    site.add("k1", "k2")
    site.take()
    ((paused, _),) = site.lose(sent=True)
    site.pipeline.resume(paused)
    site.take()
    (_,) = site.answer(14, 70)
    site.pipeline.resume(site.taken[1])
    assert site.take() == []
    assert site.failed("k1").code == 14
    assert site.failed("k2").outcome_unknown
    assert site.pipeline.idle


def test_one_bad_message_fails_alone() -> None:
    """A proxy refuses the whole request without saying which message is illegal."""
    site = Site()
    site.add(*[f"{key}1" for key in "abcde"])
    requests = 0
    while names := site.take():
        requests += 1
        site.answer(0, whole=11 if "c1" in names else 0)
    assert {name for name, error in site.outcomes.items() if error} == {"c1"}
    assert (site.failed("c1").code, site.failed("c1").outcome_unknown) == (11, False)
    assert requests <= 7
    assert site.pipeline.idle


def test_a_refusal_of_the_whole_by_an_older_proxy_leaves_doubt() -> None:
    site = Site()
    site.add("a1", "b1")
    site.take()
    site.answer(0, whole=14)
    for _ in "ab":
        site.take()
        site.answer(14)
    assert site.failed("a1").outcome_unknown
    assert site.failed("b1").outcome_unknown


def test_a_request_that_never_arrived_leaves_no_doubt() -> None:
    site = Site()
    site.add("a1")
    site.take()
    ((paused, _),) = site.lose(sent=False)
    site.pipeline.resume(paused)
    site.take()
    assert site.answer(14) == []
    assert not site.failed("a1").outcome_unknown


def test_a_send_whose_time_is_up_is_not_sent() -> None:
    site = Site()
    site.add("a1")
    site.take()
    site.add("a2")
    site.answer(0)
    assert site.take(DEADLINE_NS + 1) == []
    assert "it timed out while it waited" in str(site.failed("a2"))
    assert site.pipeline.idle


@pytest.mark.parametrize("taken", [True, False])
def test_a_cancelled_send_holds_its_key_back(taken: bool) -> None:
    """It may be stored: sends that wait behind it must not overtake it."""
    site = Site()
    site.add("k1")
    if taken:
        site.take()
    site.add("k2")
    under_way = site.taken
    site.pipeline.cancel(next(iter(site.names)))
    assert site.take() == []
    if taken:  # k2 waits until the request under way is answered
        site.taken = under_way
        site.answer(0)
        assert site.take() == []
    site.add("k3")
    assert site.take() == ["k3"]
    site.answer(0)
    assert site.outcomes.pop("k2") is not None
    assert site.outcomes == {"k1": None, "k3": None}
    assert site.pipeline.idle


@pytest.mark.parametrize("taken", [True, False])
def test_a_cancelled_send_leaves_those_ahead_of_it_alone(taken: bool) -> None:
    site = Site()
    site.add("k1")
    if taken:
        site.take()
    site.add("k2", "k3", "k4")
    site.pipeline.cancel(next(send for send, name in site.names.items() if name == "k3"))
    if taken:
        site.answer(0)
    assert site.take() == (["k2"] if taken else ["k1", "k2"])
    site.answer(*[0] * len(site.taken))
    assert site.take() == []
    assert "an earlier send of its key failed" in str(site.outcomes.pop("k4"))
    assert site.outcomes == {"k1": None, "k2": None, "k3": None}
    assert site.pipeline.idle


def test_a_cancelled_send_is_not_repeated() -> None:
    site = Site()
    site.add("k1")
    site.take()
    site.pipeline.cancel(site.taken[0])
    assert site.answer(12) == []
    assert site.pipeline.idle


def test_a_send_in_the_middle_of_its_lane_may_end_first() -> None:
    site = Site()
    site.add("k1", "k2", "k3")
    site.take()
    ((paused, _),) = site.answer(12, 0, 12)
    site.pipeline.resume(paused)
    assert site.take() == ["k1", "k3"]
    site.answer(0, 0)
    assert site.pipeline.idle
    assert repr(site.pipeline) == "<SendPipeline 0 sends in 0 lanes>"


def test_a_large_batch_is_sent_in_parts_and_stops_at_a_failure() -> None:
    site = Site()
    large = [Outgoing("orders", bytes(900_000), key="k", properties={"UNIQ_KEY": n}) for n in "123"]
    site.send("large", *large)
    assert site.take() == ["large"]
    site.answer(0)
    assert site.take() == ["large"]
    site.answer(14)
    assert site.failed("large").failures == {"3": "whole"}
    site.send("again", *large)
    site.take()
    site.answer(0, whole=71)
    assert site.failed("again").failures["3"] == "not sent: an earlier part failed"


def test_an_interrupted_request_leaves_doubt() -> None:
    site = Site()
    site.add("a1", "b1")
    site.take()
    site.pipeline.abandon(site.taken)
    assert site.failed("a1").outcome_unknown
    assert "the request was cancelled" in str(site.failed("b1"))
    site.add("c1")
    site.take()
    site.pipeline.abandon(site.taken, KeyError("a bug"))
    assert isinstance(site.outcomes["c1"], KeyError)
    assert site.pipeline.idle
