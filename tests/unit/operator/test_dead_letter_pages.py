"""Pages of dead letters."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.names import Topic
from broker_core.tasks import spawn
from proxy.operator.dead_letter_desk import DeadLetterDesk, Wish
from testkit.messages import message
from tests.support.fake_broker_client import FakeBrokerClient

LETTERS = Topic("%DLQ%billing")


async def test_all_are_shown_once_although_the_broker_s_clock_was_set_back() -> None:
    client = FakeBrokerClient(**{LETTERS: 2})
    before, after = 9_000_000, 1_000_000
    for queue_id in range(2):
        for n in range(5):
            stored_ms = (before if n < 3 else after) + n
            client.store(message(n, topic=LETTERS, queue_id=queue_id, store_ms=stored_ms))
    context: Any = SimpleNamespace(client=client)
    desk, seen, positions = DeadLetterDesk(context, is_known=lambda _: True), list[str](), None
    for _ in range(10):
        page = await desk.show("billing", Wish(limit=2, positions=positions))
        seen += [row["dead_letter"] for row in page["dead_letters"]]
        positions = page["positions"]
        if page["complete"]:
            break
    assert len(seen) == len(set(seen)) == 10
    for queue in ("broker-a_0", "broker-a_1"):
        of_it = [each for each in seen if each.startswith(queue)]
        assert of_it == [f"{queue}@{n}" for n in range(5)]


async def test_letters_of_a_very_long_key_are_found_by_it() -> None:
    """It is shown by its beginning and a digest, and known by both forms."""
    client = FakeBrokerClient(**{LETTERS: 1})
    client.store(*(message(n, topic=LETTERS, key=text) for n, text in enumerate(("k" * 600, "k"))))
    context: Any = SimpleNamespace(client=client)
    desk = DeadLetterDesk(context, is_known=lambda _: True)
    (first, _) = (await desk.show("billing", Wish()))["dead_letters"]
    for text in ("k" * 600, first["key"]):
        page = await desk.show("billing", Wish(key=text))
        assert [row["dead_letter"] for row in page["dead_letters"]] == ["broker-a_0@0"]


@pytest.mark.sockets  # time slices need real time
@pytest.mark.parametrize("exported", [False, True], ids=["list", "export"])
async def test_ten_thousand_do_not_hold_the_event_loop(exported: bool) -> None:
    client = FakeBrokerClient(**{LETTERS: 1})
    client.store(
        *(message(n, topic=LETTERS, key=f"k{n}", ORDERLANE_REASON="r" * 99) for n in range(10_000))
    )
    context: Any = SimpleNamespace(client=client)
    desk = DeadLetterDesk(context, is_known=lambda _: True)
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    async def look() -> int:
        if not exported:
            return len((await desk.show("billing", Wish(limit=10_000)))["dead_letters"])
        pieces = [each async for each in desk.export("billing", Wish(limit=None)).pieces]
        return b"".join(pieces).count(b"\n")

    watching = spawn(watch(), name="watch")
    await asyncio.sleep(0)
    assert await look() == 10_000
    await asyncio.sleep(0)
    watching.cancel()
    assert longest < 0.15
