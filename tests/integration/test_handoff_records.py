"""What a proxy does about a queue that was given to another, by its records. Brokers in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from proxy.core.ids import Epoch
from proxy.core.ownership_record import Clean
from proxy.errors import WrongState
from proxy.upstream.owned_queue import QueueState
from tests.support.eventually import eventually
from tests.support.upstreams import BILLING, one_queue, rival, taking_part, twin_of, upstream, write

US, NAMED = "us@1#1", "named@1#1"


def _members(*names: str) -> Callable[..., Awaitable[list[str]]]:
    async def consumer_ids(*_: object) -> list[str]:
        return list(names)

    return consumer_ids


async def test_a_queue_that_is_meant_for_another_member_is_unlocked_again() -> None:
    brokers, queue = one_queue()
    write(brokers, queue, rival(), Clean(Epoch(0), to=NAMED))
    async with upstream(brokers) as us:
        us.client.consumer_ids = _members(NAMED, US)
        owned = us.own(queue)
        await eventually(lambda: owned.state is QueueState.GONE)
        assert (BILLING, queue) not in brokers.holders
        assert len(brokers.logs[twin_of(brokers, queue)]) == 2  # it never was the owner
        us.client.consumer_ids = _members(US)  # that one is there no more
        await us.owned(queue)


async def test_an_end_that_was_meant_for_this_member_is_as_any() -> None:
    brokers, queue = one_queue()
    write(brokers, queue, rival(), Clean(Epoch(0), to=US))
    async with upstream(brokers) as us:
        us.client.consumer_ids = _members(NAMED, US)
        await us.owned(queue)


async def test_a_queue_that_was_lost_a_moment_ago_cannot_be_given() -> None:
    """Whoever asks for it had found it owned; nothing is said to be handed over."""
    brokers, queue = one_queue()
    async with upstream(brokers) as us, taking_part(us) as ownership:
        await eventually(lambda: us.lane.buffer.find(queue) is not None)
        owned = ownership.owned(queue)
        assert owned is not None
        assert owned.is_sure
        await owned.lose("the broker says so")
        with pytest.raises(WrongState, match="is being taken over or handed over"):
            ownership.give(queue, NAMED)
        await eventually(lambda: ownership.owned(queue) not in (None, owned))
