"""A proxy's treatment of queues given to others, by their records. Brokers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Clean
from proxy.errors import WrongState
from proxy.settings.proxy_settings import Settings
from proxy.upstream.ownership.named_owners import handoffs_of
from proxy.upstream.ownership.owned_queue import QueueState
from testkit.eventually import eventually
from tests.integration.upstream.upstreams import (
    BILLING,
    QUICK,
    SECOND,
    once,
    one_queue,
    rival,
    taking_part,
    twin_of,
    upstream,
    write,
)

US, NAMED = "us@1#1", "named@1#1"


def _members(*names: str) -> Callable[..., Awaitable[list[str]]]:
    async def consumer_ids(*_: object) -> list[str]:
        return list(names)

    return consumer_ids


async def test_a_queue_given_to_another_member_is_unlocked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, queue = one_queue()
    write(brokers, queue, rival(), Clean(Epoch(0), to=NAMED))
    async with upstream(brokers) as us:
        monkeypatch.setattr(us.client, "consumer_ids", _members(NAMED, US))
        owned = us.own(queue)
        await eventually(lambda: owned.state is QueueState.GONE)
        assert (BILLING, queue) not in brokers.holders
        assert len(brokers.logs[twin_of(brokers, queue)]) == 2  # it never was the owner
        monkeypatch.setattr(us.client, "consumer_ids", _members(US))  # the other member has left
        await us.owned(queue)


async def test_the_wait_for_an_absent_member_is_no_longer_than_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its process is stopped: brokers still list it, but it will not request the lock."""
    brokers, queue = one_queue()
    write(brokers, queue, rival(), Clean(Epoch(0), to="zoe@1#1"))
    given_back: list[object] = []
    async with upstream(brokers, lock=QUICK) as us:
        monkeypatch.setattr(
            us.client, "consumer_ids", _members("zoe@1#1", US)
        )  # a share by averaging is ours
        us.client.before["unlock"] = once(lambda *_: given_back.append(us.lane.buffer.find(queue)))
        async with taking_part(us):
            await eventually(lambda: us.lane.buffer.find(queue) is not None, within_s=20)
    assert given_back == [None]  # at first it leaves the queue alone


def test_a_queue_is_expected_for_as_long_as_its_owner_may_wait_for_clients() -> None:
    _, queue = one_queue()
    handoffs = handoffs_of(Settings.model_validate({"ownership": {"drain_s": 100}}))
    handoffs.expect(queue, now_ns=0)
    for now_s, expected in ((0, True), (101, True), (1000, False)):
        share = handoffs.share(
            [], queues=[queue], owned=[], members=[US, NAMED], now_ns=now_s * SECOND
        )
        assert (share == [queue]) is expected


async def test_an_end_in_favour_of_this_member_is_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, queue = one_queue()
    write(brokers, queue, rival(), Clean(Epoch(0), to=US))
    async with upstream(brokers) as us:
        monkeypatch.setattr(us.client, "consumer_ids", _members(NAMED, US))
        await us.owned(queue)


async def test_a_queue_that_was_lost_a_moment_ago_cannot_be_given() -> None:
    """The request had found the queue owned; it is not reported as being handed over."""
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


async def test_a_queue_that_is_lost_while_it_is_given_is_not_reported_as_given() -> None:
    brokers, queue = one_queue()
    asked, never = asyncio.Event(), asyncio.Event()

    async def stands_still(*_: object) -> None:
        asked.set()
        await never.wait()

    async with upstream(brokers) as us, taking_part(us) as ownership:
        await eventually(lambda: us.lane.buffer.find(queue) is not None)
        owned = ownership.owned(queue)
        assert owned is not None
        us.client.before["send"] = stands_still
        giving = ownership.give(queue, NAMED)
        await asked.wait()
        await owned.lose("another proxy has the lock")
        del us.client.before["send"]
        assert "lost queue broker-a_0 while it handed it over" in str(await giving)
