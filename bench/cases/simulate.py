"""Case ``simulate``: cost of simulating an order key with the real core in virtual time."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache, partial
from random import Random
from types import SimpleNamespace

from bench.flights import OF_THE_YEAR, sample_of_flights
from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import OrderViolated, RunContext
from bench.frame.figures import Figures
from proxy.cli.garbage import look_at_young_objects_only
from proxy.cli.side_by_side import side_by_side
from proxy.core.jobs.hand_out import HandOut
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulation import simulate
from proxy.tuning.simulator import Plan, play

_QUEUES, _HANDLERS = 8, 64
_SERVICE_MS = "p50=3,p99=80"
#: Mean number of messages per key.
_OF_A_KEY = 10
_CANDIDATES = ("KEY", "QID")
_OF_FLIGHTS = ("$.tailnum", "$.carrier", "$.origin", "$.dest", "$.flight")


@lru_cache(maxsize=1)
def _sample(messages: int, seed: int) -> Sample:
    """Return random keys, each in one queue, as from a producer with a sharding key."""
    chance, sample = Random(seed), Sample(_CANDIDATES)
    ends = [0] * _QUEUES
    for number in range(messages):
        key = chance.randrange(max(1, messages // _OF_A_KEY))
        queue = key % _QUEUES
        message = SimpleNamespace(key=f"key-{key}", body=b"")
        sample.add(message, queue=f"broker-a_{queue}", offset=ends[queue], stored_ms=number)
        ends[queue] += 1
    return sample


def _simulated(
    context: RunContext, messages: Point, *, candidate: str, hand_out: HandOut = HandOut.OLDEST
) -> Figures:
    sample = _sample(int(messages), context.seed)
    plan = replace(_plan(context), hand_out=hand_out)
    look_at_young_objects_only()  # as the verb does
    began_ns, spent_ns = time.monotonic_ns(), time.process_time_ns()
    played = play(sample, candidate, TopicRules(compile_order_key(candidate)), plan)
    took_ns, spent_ns = time.monotonic_ns() - began_ns, time.process_time_ns() - spent_ns
    if len(played.key_waits_ns) != messages:
        raise OrderViolated(f"{len(played.key_waits_ns):,} of {messages:,} messages were handled")
    return {
        "seconds": took_ns / 1e9,
        "of_one": took_ns / 1e9,
        "cpu_us": spent_ns / 1e3 / int(messages),
        "simulated_s": played.total_ns / 1e9,
    }


def _verb(context: RunContext, messages: Point) -> Figures:
    """Simulate all candidates as the verb does once it has the sample."""
    return _side_by_side(context, _sample(int(messages), context.seed))


@lru_cache(maxsize=1)
def _flights(messages: int) -> Sample:
    """Return *messages* flights, repeating the year if necessary."""
    times = -(-messages // OF_THE_YEAR)
    which = "all" if times > 1 else str(messages)
    return sample_of_flights(which, _OF_FLIGHTS, queues=_QUEUES, times=times)


def _verb_on_flights(context: RunContext, messages: Point) -> Figures:
    return _side_by_side(context, _flights(int(messages)))


def _side_by_side(context: RunContext, sample: Sample) -> Figures:
    plan = _plan(context)
    lint = sample.report(source="a benchmark", workers=_HANDLERS)
    look_at_young_objects_only()
    began_ns = time.monotonic_ns()
    rules = TopicRules(compile_order_key("KEY"))
    report = simulate(sample, rules, plan, lint=lint, each=side_by_side)
    seconds = (time.monotonic_ns() - began_ns) / 1e9
    return {"seconds": seconds, "of_one": seconds / len(report.candidates)}


def _plan(context: RunContext) -> Plan:
    return Plan(_HANDLERS, ServiceTimes.parse(_SERVICE_MS, seed=context.seed))


CASES = (
    Case(
        name="simulate",
        title="Order keys, how soon",
        question="How long does orderlane order-key simulate take for a candidate?",
        about=f"Messages with {_OF_A_KEY} per key on average, in {_QUEUES} queues, for {_HANDLERS}"
        f" handlers that take {_SERVICE_MS} ms (lognormal), from a sample already read. *KEY*"
        " and *QID*: one candidate in one process; *longest*: *KEY* in a group with `hand_out:"
        " longest_chain`. *both*: these two as the command runs"
        " them, one process per processor. *flights*: the same with"
        f" {', '.join(_OF_FLIGHTS)}, on real flights of 2013, sent by aircraft; above"
        f" {OF_THE_YEAR:,} the whole year is repeated. *Simulated* is the virtual time.",
        point="messages",
        points=(100_000, 1_000_000),
        arms={
            **{each: partial(_simulated, candidate=each) for each in _CANDIDATES},
            "longest": partial(_simulated, candidate="KEY", hand_out=HandOut.LONGEST_CHAIN),
            "both": _verb,
            "flights": _verb_on_flights,
        },
        columns=(
            Column("seconds", "seconds", digits=1),
            Column("of_one", "seconds a candidate", digits=1),
            Column("cpu_us", "CPU µs a message", digits=1),
            Column("simulated_s", "simulated s"),
        ),
        short=Shape(rounds=3, points=(100_000,)),
        full=Shape(rounds=5),
        histories="none",
    ),
)
