"""What a simulation of an order key costs: the very core, with virtual time around it."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from random import Random
from types import SimpleNamespace

from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import OrderViolated, RunContext
from bench.frame.peer import Figures
from proxy.core.order_key import compile_order_key
from proxy.core.rules import TopicRules
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulator import Plan, play

_QUEUES, _HANDLERS = 8, 64
_SERVICE_MS = "p50=3,p99=80"
#: Messages of one key, on average.
_OF_A_KEY = 10
_CANDIDATES = ("KEY", "QID")


@lru_cache(maxsize=1)
def _sample(messages: int, seed: int) -> Sample:
    """Keys by chance, each in one queue, as a producer with a sharding key sends them."""
    chance, sample = Random(seed), Sample(_CANDIDATES)
    ends = [0] * _QUEUES
    for number in range(messages):
        key = chance.randrange(max(1, messages // _OF_A_KEY))
        queue = key % _QUEUES
        message = SimpleNamespace(key=f"key-{key}", body=b"")
        sample.add(message, queue=f"broker-a_{queue}", offset=ends[queue], stored_ms=number)
        ends[queue] += 1
    return sample


def _simulated(context: RunContext, messages: Point, *, candidate: str) -> Figures:
    sample = _sample(int(messages), context.seed)
    plan = Plan(_HANDLERS, ServiceTimes.parse(_SERVICE_MS, seed=context.seed))
    rules = TopicRules(compile_order_key(candidate))
    began_ns = time.process_time_ns()
    played = play(sample, candidate, rules, plan)
    took_ns = time.process_time_ns() - began_ns
    if len(played.key_waits_ns) != messages:
        raise OrderViolated(f"{len(played.key_waits_ns):,} of {messages:,} messages were handled")
    return {
        "cpu_s": took_ns / 1e9,
        "each_us": took_ns / 1e3 / int(messages),
        "simulated_s": played.total_ns / 1e9,
    }


CASES = (
    Case(
        name="simulate",
        title="Order keys, how soon",
        question="How long does orderlane order-key simulate take for one candidate?",
        about=f"Messages with {_OF_A_KEY} of a key on average, in {_QUEUES} queues, for {_HANDLERS}"
        f" handlers that take {_SERVICE_MS} ms (lognormal). One process, no I/O; the sample is"
        " there already. *Simulated* is the virtual time that goes by.",
        point="messages",
        points=(100_000, 1_000_000),
        arms={each: partial(_simulated, candidate=each) for each in _CANDIDATES},
        columns=(
            Column("cpu_s", "CPU s", digits=1),
            Column("each_us", "CPU µs each", digits=1),
            Column("simulated_s", "simulated s"),
        ),
        short=Shape(rounds=3, points=(100_000,)),
        full=Shape(rounds=5),
        histories="none",
    ),
)
