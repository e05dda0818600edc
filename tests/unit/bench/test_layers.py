"""The layers of a pull: their number of calls, which does not depend on the machine."""

from __future__ import annotations

import asyncio

import pytest

from bench.layers import costs, counts
from bench.layers.stage import QUEUES, Stage, backlog

_MESSAGES = 640


def _calls(layer: str, *, batch: int) -> float:
    """Return the calls a message of *layer*, with those below it."""

    async def measure() -> float:
        stage = Stage(turns=False)
        stage.read(backlog(_MESSAGES))
        with costs.CallCount() as calls:
            meter = costs.Meter(calls)
            getattr(costs, layer)(stage, batch, _MESSAGES // (batch * costs.CONNECTIONS), meter)
        stage.close()
        return meter.median / (batch * costs.CONNECTIONS)

    return asyncio.run(measure())


@pytest.mark.parametrize(
    ("layer", "most"), [("core", 34), ("lane", 54), ("service", 75), ("thrift", 10), ("port", 102)]
)
def test_a_single_message_takes_few_calls(layer: str, most: int) -> None:
    """Each call costs about a tenth of a codec step; half of these are one for all of a batch."""
    assert most * 0.5 < _calls(layer, batch=1) <= most


@pytest.mark.parametrize(("waiting", "most"), [(False, 94), (True, 190)])
def test_steps_are_counted_by_layer(waiting: bool, most: int) -> None:
    found = asyncio.run(counts.of_proxy(1, waiting=waiting, rounds=2))
    read = found.pop("reading")
    assert (read.instructions > read.calls > 0) is waiting, "in advance, unless the pull waits"
    assert all(each.instructions > each.calls > 0 for each in found.values())
    assert most * 0.8 < sum(each.calls for each in (read, *found.values())) <= most


def test_larger_batches_share_most_calls() -> None:
    assert _calls("port", batch=8) < _calls("port", batch=1) / 3


def test_a_message_of_a_batch_takes_few_instructions_of_the_core() -> None:
    found = asyncio.run(counts.of_proxy(16, rounds=2))
    assert 300 < found["core"].instructions <= 425


def test_a_message_that_is_read_takes_few_calls() -> None:
    async def measure() -> tuple[float, list[int]]:
        stage, records = Stage(turns=False), backlog(QUEUES * 512)
        with costs.CallCount() as calls:
            meter = costs.Meter(calls)
            messages = costs.reading(stage, records, meter)
        positions = [each.position for each in stage.queues]
        stage.close()
        return meter.median / messages, positions

    calls, positions = asyncio.run(measure())
    assert 4 < calls <= 8
    assert positions == [512] * QUEUES
