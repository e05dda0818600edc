"""Pages of dead letters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker_core.names import Topic
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
