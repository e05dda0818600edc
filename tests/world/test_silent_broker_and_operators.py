"""An operator sees what all other brokers say while one of three hangs, and which one that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from testkit.simulation.clients import Flow
from tests.world.stage import Stage, play

LETTERS = "%DLQ%billing"
BROKERS = ("broker-a", "broker-b", "broker-c")
KEYS = tuple(f"k{number}" for number in range(30))
BILLING, SHIPPING = "/api/groups/billing", "/api/groups/shipping"
MESSAGES = "/api/topics/orders/messages"
#: One timeout of a request to a broker, and the rest of an answer.
WITHIN_S = 4.0


async def one_of_three_hangs(stage: Stage) -> None:
    """Billing has clients, dead letters and a paused group; shipping has lost its clients, with a
    paused key; then broker B accepts connections, but answers nothing.
    """
    groups = [
        {"name": name, "topics": [{"name": "orders", "order_key": "KEY"}]}
        for name in ("billing", "shipping")
    ]
    await stage.start(
        groups=groups,
        topics={"orders": 2, LETTERS: 1},
        brokers={name: {} for name in BROKERS},
        ownership__leave_after_s=1,
    )
    stage.consume("billing-1", "billing")
    leaving = stage.consume("shipping-1", "shipping")
    await stage.producer.send_natively(Flow("orders", KEYS, 0.01, 200))
    await stage.producer.send_natively(Flow(LETTERS, KEYS, 0.01, 60))
    await stage.until(lambda: len(stage.of("finish")) == 400)
    await stage.act(f"{BILLING}/topics/orders/keys/pause", key="k1")
    await stage.act(f"{BILLING}/topics/orders/keys/resume", key="k1")
    await stage.act(f"{SHIPPING}/topics/orders/keys/pause", key="k1")
    leaving.kill()
    await stage.until(lambda: len(stage.of("own-", group="shipping")) == 6)
    await asyncio.sleep(60)  # the proxy has looked at the queues without an owner
    stage.world.nodes["broker-b"].pause()
    await asyncio.sleep(40)


async def ask(stage: Stage, path: str, *, within_s: float = WITHIN_S) -> Any:
    loop = stage.world.loop
    began_ns = loop.now_ns
    status, answer = await stage.world.http(stage.world.proxies[0], path, timeout_s=60)
    assert status == 200, (path, status, answer)
    assert (loop.now_ns - began_ns) / 1e9 < within_s, path
    return answer


def brokers_in(places: Iterable[str]) -> set[str]:
    return {place.partition("_")[0] for place in places}


def rows_are_of_the_others(rows: str, place: str) -> Callable[[Any], None]:
    def check(answer: Any) -> None:
        assert brokers_in(row[place] for row in answer[rows]) == {"broker-a", "broker-c"}
        assert [*answer["unanswered"]] == ["broker-b"]

    return check


def owners(answer: Any) -> None:
    states = {(row["group"], row["queue"]): row["state"] for row in answer["queues"]}
    assert len(states) == 12
    unknown = {place for (_, place), state in states.items() if state == "unknown"}
    assert unknown == {"broker-b_0", "broker-b_1"}
    assert states["billing", "broker-a_0"] == "owned"
    assert states["shipping", "broker-c_1"] == "free"
    assert [*answer["unanswered"]] == ["broker-b"]


def audit(answer: Any) -> None:
    assert {record["verb"] for record in answer["records"]} >= {"key pause"}
    assert answer["complete"] is False
    assert [*answer["unanswered"]] == ["broker-b"]


def dead_letters(answer: Any) -> None:
    rows_are_of_the_others("dead_letters", "dead_letter")(answer)
    assert (answer["waiting"], answer["complete"]) == (None, True)
    assert "broker-b" not in answer["positions"]


def messages(answer: Any) -> None:
    rows_are_of_the_others("messages", "queue")(answer)


def end_of_messages(answer: Any) -> None:
    assert [*answer["unanswered"]] == ["broker-b"]
    assert "broker-b_0@end,broker-b_1@end" in answer["positions"]


def paused_without_owner(rows: Any) -> None:
    assert brokers_in(row["queue"] for row in rows) == {"broker-a", "broker-c"}


def groups(answer: Any) -> None:
    state = answer["billing"]["state"]
    assert (state["word"], "broker-b" in state["sentence"]) == ("unknown", True)
    shown = {row["queue"]: row["trouble"] != "" for row in answer["shipping"]["others"]}
    assert {place for place, troubled in shown.items() if troubled} == {"broker-b_0", "broker-b_1"}
    assert len(shown) == 6


def diagnosis(answer: Any) -> None:
    assert answer["sentence"].startswith("broker broker-b does not answer")


def events(rows: Any) -> None:
    assert {row["what"] for row in rows} >= {"key pause", "key resume"}


VIEWS: dict[str, Callable[[Any], None]] = {
    "/api/groups": groups,
    "/api/owners": owners,
    "/api/audit": audit,
    f"{BILLING}/offsets": rows_are_of_the_others("queues", "queue"),
    f"{SHIPPING}/offsets": rows_are_of_the_others("queues", "queue"),
    f"{BILLING}/diagnosis": diagnosis,
    f"{SHIPPING}/diagnosis": diagnosis,
    f"{BILLING}/dead-letters": dead_letters,
    f"{BILLING}/dead-letters?all=true": dead_letters,
    f"{SHIPPING}/topics/orders/keys/paused": paused_without_owner,
    f"{SHIPPING}/topics/orders/keys/show?key=k1": paused_without_owner,
    f"{BILLING}/topics/orders/keys/history?key=k1": events,
    MESSAGES: messages,
    f"{MESSAGES}?start=oldest": messages,
    f"{MESSAGES}?time_ms=1": messages,
    f"{MESSAGES}?contains=k1": messages,
    f"{MESSAGES}?start=end": end_of_messages,
}


def test_views_show_what_the_others_say() -> None:
    async def main(stage: Stage) -> None:
        await one_of_three_hangs(stage)
        failed = {}
        for path, check in VIEWS.items():
            try:
                check(await ask(stage, path))
            except (AssertionError, KeyError) as error:
                failed[path] = str(error)
        assert failed == {}

    play(main)


def test_messages_with_a_key_are_looked_up_at_all_brokers_at_once() -> None:
    async def main(stage: Stage) -> None:
        await one_of_three_hangs(stage)
        stage.world.nodes["broker-c"].pause()
        found = await ask(stage, f"{MESSAGES}?key=k1", within_s=11)
        assert sorted(found["unanswered"]) == ["broker-b", "broker-c"]

    play(main)


def test_followed_messages_of_a_silent_broker_begin_where_it_stopped_to_answer() -> None:
    """None is shown twice, and nothing old, whether its positions were known before or not."""

    async def main(stage: Stage) -> None:
        await one_of_three_hangs(stage)
        unknown = (await ask(stage, f"{MESSAGES}?start=end"))["positions"]
        known = (await ask(stage, f"{MESSAGES}?start=oldest&limit=200"))["positions"]
        stage.world.nodes["broker-b"].resume()
        await asyncio.sleep(60)
        page = await ask(stage, f"{MESSAGES}?positions={unknown}")
        assert (page["messages"], page["complete"], page["unanswered"]) == ([], True, {})
        rest = await ask(stage, f"{MESSAGES}?positions={known}&limit=200")
        assert brokers_in(row["queue"] for row in rest["messages"]) == {"broker-b"}
        assert len(rest["messages"]) == 72

    play(main)


def test_nothing_is_known_if_no_broker_answers() -> None:
    async def main(stage: Stage) -> None:
        await one_of_three_hangs(stage)
        for name in ("broker-a", "broker-c"):
            stage.world.nodes[name].pause()
        for path in ("/api/audit", f"{BILLING}/offsets", f"{BILLING}/dead-letters", MESSAGES):
            status, answer = await stage.world.http(stage.world.proxies[0], path, timeout_s=60)
            assert (status, *(name in answer["error"] for name in BROKERS)) == (503, *[True] * 3)

    play(main)


def test_diagnoses_of_all_groups_are_made_soon() -> None:
    """A pause after each, in proportion to the time that it took, would be five minutes long."""

    async def main(stage: Stage) -> None:
        await one_of_three_hangs(stage)
        await ask(stage, "/api/diagnoses")
        await asyncio.sleep(30)
        found = await ask(stage, "/api/diagnoses")
        sentences = [each["sentence"] or "" for each in found]
        assert all(each.startswith("broker broker-b does not answer") for each in sentences)
        assert len(sentences) == 2

    play(main)
