"""Batches adapt to their broker's limit."""

from __future__ import annotations

import pytest

from broker_core.client import batch_limits
from broker_core.client.batch_limits import MOST_ENCODED, MOST_MESSAGES, BatchLimits
from broker_core.errors import BrokerError, NoSuchQueue

_TOO_LONG = BrokerError(13, "too long")


class TakesAtMost:
    """A broker with a limit of *limit* bytes per request, counted as ours does; refuses
    *illegal*.
    """

    def __init__(self, sizes: list[int], limit: int, illegal: tuple[int, ...] = ()) -> None:
        self.sizes, self.limit, self.illegal = sizes, limit, illegal
        self.taken: list[tuple[int, int]] = []
        self.refused = 0

    async def send(self, begin: int, end: int) -> None:
        too_long = sum(self.sizes[begin:end]) + 22 * (end - begin) > self.limit
        if too_long or any(begin <= at < end for at in self.illegal):
            self.refused += 1
            raise _TOO_LONG
        self.taken.append((begin, end))


def whole(taken: list[tuple[int, int]]) -> bool:
    """Return whether the ranges are contiguous from the first message on."""
    return [begin for begin, _ in taken] == [0, *(end for _, end in taken[:-1])]


@pytest.mark.parametrize("limit", [1_100, 3_000, 65_536, 4_000_000])
async def test_all_is_sent_in_order_whatever_the_broker_takes(limit: int) -> None:
    sizes = [1000] * 1000
    limits, broker = BatchLimits(), TakesAtMost(sizes, limit)
    await limits.in_pieces("a", sizes, broker.send)
    assert whole(broker.taken)
    assert broker.taken[-1][1] == len(sizes)
    refused = broker.refused
    await limits.in_pieces("a", sizes, broker.send)
    assert broker.refused == refused  # the limit is known by now
    assert max(end - begin for begin, end in broker.taken) <= MOST_MESSAGES


async def test_of_another_broker_nothing_is_known() -> None:
    sizes = [1000] * 100
    limits, broker = BatchLimits(), TakesAtMost(sizes, 5000)
    await limits.in_pieces("a", sizes, broker.send)
    assert limits.of("a") <= 5000 < limits.of("b")


async def test_what_was_learned_counts_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 10**12
    monkeypatch.setattr(batch_limits, "now_ns", lambda: now_ns)
    sizes = [1000] * 100
    limits, broker = BatchLimits(), TakesAtMost(sizes, 5000)
    await limits.in_pieces("a", sizes, broker.send)
    broker.limit, broker.taken = 1_000_000, []
    now_ns += 601 * 10**9
    await limits.in_pieces("a", sizes, broker.send)
    assert broker.taken == [(0, 100)]


@pytest.mark.parametrize("illegal", [0, 5, 99])
async def test_an_illegal_message_is_refused_alone_and_sets_no_limit(illegal: int) -> None:
    sizes = [100] * 100
    limits, broker = BatchLimits(), TakesAtMost(sizes, 65_536, (illegal,))
    with pytest.raises(BrokerError):
        await limits.in_pieces("a", sizes, broker.send)
    assert (broker.taken[-1][1] if broker.taken else 0) == illegal  # all before it are stored
    assert whole(broker.taken) or not illegal
    assert limits.of("a") == batch_limits.MOST_BYTES


async def test_another_failure_is_no_reason_to_send_less() -> None:
    asked = []

    async def busy(begin: int, end: int) -> None:
        asked.append((begin, end))
        raise BrokerError(2, "busy")

    with pytest.raises(BrokerError, match="busy"):
        await BatchLimits().in_pieces("a", [10] * 4, busy)
    assert asked == [(0, 4)]


async def test_nothing_is_sent_for_no_messages() -> None:
    broker = TakesAtMost([], 1)
    await BatchLimits().in_pieces("a", [], broker.send)
    assert broker.taken == []


async def test_a_single_message_that_is_refused_is_halved_until_that_would_not_help() -> None:
    limits = BatchLimits()
    size, refused = 320_000, 0
    while size > 9_000:
        assert limits.refused("a", size)
        size, refused = limits.of("a"), refused + 1
    assert refused == 6
    assert limits.of("b") > 9_000
    assert not limits.refused("a", 900), "it is refused for something else"
    assert limits.of("a") == size


# ---- encoded batches ----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1_100, 3_000, 65_536, 4_000_000])
async def test_slices_are_whole_messages_in_order_whatever_the_broker_takes(limit: int) -> None:
    sizes = [1000] * 1000
    ends = [1022 * (n + 1) for n in range(len(sizes))]
    limits, broker = BatchLimits(), TakesAtMost(sizes, limit)
    await limits.in_slices("a", ends, broker.send)
    assert whole(broker.taken)
    assert broker.taken[-1][1] == len(sizes)
    refused = broker.refused
    await limits.in_slices("a", ends, broker.send)
    assert broker.refused == refused  # the limit is known by now


async def test_a_slice_of_small_messages_has_a_limited_number() -> None:
    sizes = [1] * (2 * MOST_ENCODED + 1)
    ends = [23 * (n + 1) for n in range(len(sizes))]
    broker = TakesAtMost(sizes, 1 << 30)
    await BatchLimits().in_slices("a", ends, broker.send)
    assert [end - begin for begin, end in broker.taken] == [MOST_ENCODED, MOST_ENCODED, 1]


async def test_the_first_illegal_message_ends_the_slices() -> None:
    sizes = [1000] * 10
    broker = TakesAtMost(sizes, 1 << 30, illegal=(4,))
    with pytest.raises(BrokerError, match="too long"):
        await BatchLimits().in_slices("a", [1022 * (n + 1) for n in range(10)], broker.send)
    assert broker.taken[-1][1] == 4


async def test_a_missing_queue_is_looked_for_once() -> None:
    tried: list[tuple[int, int]] = []

    async def send(begin: int, end: int) -> None:
        tried.append((begin, end))
        raise NoSuchQueue("topic orders has no queue broker-a_1")

    with pytest.raises(NoSuchQueue):
        await BatchLimits().in_slices("a", [1022 * (n + 1) for n in range(10)], send)
    assert tried == [(0, 10)]
