"""A pipelining producer keeps the order of each key, whatever proxies answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from thin_client.delivery import Delivery, Outgoing, Stamp, deliveries
from thin_client.errors import ConnectionLost
from thin_client.send_pipeline import Send, SendPipeline
from thrift_idl import producer

STAMP = Stamp(None, lambda properties: None, lambda: 0.0)
#: Retriable and final codes of single messages; behind a failure of its key a message gets 70.
CODES = (0, 0, 0, 12, 15, 14)


@dataclass
class Proxies:
    """Requests under way and what was stored: for each key the numbers of its calls."""

    pipeline: SendPipeline = field(default_factory=SendPipeline)
    under_way: list[list[Send]] = field(default_factory=list)
    paused: list[Send] = field(default_factory=list)
    names: dict[Send, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    stored: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[tuple[str, int], Exception | None] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    cancelled: set[tuple[str, int]] = field(default_factory=set)

    def call(self, keys: str) -> None:
        names = []
        for key in keys:
            self.calls[key] += 1
            names.append((key, self.calls[key]))

        def ended(error: Exception | None) -> None:
            for name in names:
                assert name not in self.ended
                self.ended[name] = error

        messages = [Outgoing("t", f"{key}{number}", key=key) for key, number in names]
        made: list[Delivery] = deliveries(messages, deadline_ns=1, stamp=STAMP)
        self.names[self.pipeline.add(self.pipeline.enter(), made, ended)] = tuple(names)

    def take(self) -> None:
        sends = self.pipeline.take(0)
        if not sends:
            return
        busy = {lane for request in self.under_way for each in request for lane in each.lanes}
        assert not busy & {lane for each in sends for lane in each.lanes}
        self.under_way.append(sends)

    def answer(self, which: int, codes: list[int], *, lost: bool, whole: bool) -> None:
        if not self.under_way:
            return
        sends = self.under_way.pop(which % len(self.under_way))
        blocked, results = set(), []
        for number, name in enumerate(name for send in sends for name in self._open(send)):
            code = codes[number % len(codes)]
            if name[0] in blocked:
                code = 70
            if code == 0:
                self.stored[name[0]].append(name[1])
            else:
                blocked.add(name[0])
            results.append(producer.MessageResult(code=code, msg="told"))
        if lost:
            error = ConnectionLost("lost")
            pauses = self.pipeline.lost(sends, error, sent=True, now_ns=0, jitter=lambda: 0.5)
        else:
            worst = max(each.code or 0 for each in results)
            one = worst == 0 or len(results) == 1
            if whole and not one and len(sends) > 1:
                worst, one = 14, True
            answer = producer.Result(code=worst, msg="some", messages=None if one else results)
            pauses = self.pipeline.answered(sends, answer, now_ns=0, jitter=lambda: 0.5)
        self.paused += [send for send, _ in pauses]

    def _open(self, send: Send) -> list[tuple[str, int]]:
        """Return the names of the messages that the request of *send* still has to store."""
        ids = set(send.request.open_ids())
        names = self.names[send]
        return [
            name
            for name, message_id in zip(names, send.request.message_ids, strict=True)
            if message_id in ids
        ]

    def cancel(self, which: int) -> None:
        if self.names:
            send = [*self.names][which % len(self.names)]
            if not self.ended.keys() & set(self.names[send]):
                self.cancelled |= set(self.names[send])
            self.pipeline.cancel(send)

    def resume(self) -> None:
        while self.paused:
            self.pipeline.resume(self.paused.pop())

    def finish(self) -> None:
        while not self.pipeline.idle:
            self.resume()
            self.take()
            self.answer(0, [0], lost=False, whole=False)


def step(site: Proxies, draw: Random) -> None:
    """Let one thing happen."""
    match draw.choice(("call", "call", "take", "take", "answer", "answer", "resume", "cancel")):
        case "call":
            site.call(draw.choice(("a", "a", "b", "c", "ab", "aab", "bc")))
        case "take":
            site.take()
        case "answer":
            codes = draw.choices(CODES, k=3)
            how = draw.choice(("told", "told", "told", "lost", "whole"))
            site.answer(draw.randrange(4), codes, lost=how == "lost", whole=how == "whole")
        case "resume":
            site.resume()
        case _:
            if draw.random() < 0.3:
                site.cancel(draw.randrange(40))


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32))
def test_no_send_of_a_key_overtakes_another(seed: int) -> None:
    """First copies are stored in the order of the calls; every send ends, once."""
    site, draw = Proxies(), Random(seed)
    for _ in range(60):
        step(site, draw)
    site.finish()
    assert sum(site.calls.values()) == len(site.ended)
    for key, numbers in site.stored.items():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first)
        done = {
            number
            for (of, number), error in site.ended.items()
            if of == key and error is None and (of, number) not in site.cancelled
        }
        assert done <= set(first)
