"""Pulls with an SQL92 filter: matches, wake-ups of held pulls, and refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from broker_core.names import Topic
from broker_core.remoting.bodies import ConsumerData, Heartbeat, Subscription
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.message import OutgoingMessage, decode_messages
from broker_core.remoting.message_batch import encode_batch
from broker_core.tasks import spawn
from testkit.broker_process import run_broker
from testkit.eventually import eventually
from tests.integration.broker.raw_requests import GROUP, TOPIC, Raw, send_header


@pytest.fixture
async def raw(tmp_path: Path) -> AsyncIterator[Raw]:
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
        connection = Raw(cluster)
        yield connection
        await connection.pool.close()


async def send(raw: Raw, *numbers: int, size: int = 1) -> None:
    batch = [
        OutgoingMessage(TOPIC, b"%d" % n * size, tag="even" if n % 2 == 0 else "odd",
                        properties={"n": str(n), "colour": "blue"})
        for n in numbers
    ]  # fmt: skip
    await raw.ask(RequestCode.SEND_BATCH_MESSAGE, send_header().to_v2(), encode_batch(batch))


async def pull(
    raw: Raw, where: str, offset: int = 0, **fields: object
) -> tuple[list[int], int, int]:
    """Return the offsets of the messages, the next offset, and the code."""
    answer = await raw.pull(
        expression_type="SQL92", subscription=where, queue_offset=offset, **fields
    )
    found = [message.queue_offset for message in decode_messages(answer.body)]
    return found, int(answer.ext["nextBeginOffset"]), answer.code


async def test_only_what_passes_comes(raw: Raw) -> None:
    await send(raw, *range(100))
    assert await pull(raw, "n BETWEEN 10 AND 12 OR n = 70") == ([10, 11, 12, 70], 100, 0)
    assert await pull(raw, "TAGS = 'even' AND n < 5") == ([0, 2, 4], 100, 0)
    assert await pull(raw, "colour = 'blue'", max_msg_nums=3) == ([0, 1, 2], 3, 0)
    assert await pull(raw, "colour <> 'blue'") == ([], 100, 20)
    assert await pull(raw, "colour > 5") == ([], 100, 20), "blue is no number"
    assert await pull(raw, "n >= 0", 100) == ([], 100, 19)


async def test_a_pull_looks_at_so_much_and_the_next_one_goes_on(raw: Raw) -> None:
    """Large messages and small ones: each is examined once, and none is omitted."""
    await send(raw, *range(3000))
    await send(raw, *range(3000, 3020), size=50_000)
    found, offset, pulls = [], 0, 0
    while offset < 3020:
        some, offset, code = await pull(raw, "n IN ('1', '2999', '3019')", offset)
        assert code == (0 if some else 20)
        found += some
        pulls += 1
    assert found == [1, 2999, 3019]
    assert 2 <= pulls <= 6
    few, offset, _ = await pull(raw, "n >= 3000", 3000, max_msg_bytes=1)
    assert (few, offset) == ([3000], 3001)


async def test_a_read_by_a_long_filter_examines_few_messages(raw: Raw) -> None:
    """It would take a second, in which the broker serves no client."""
    await send(raw, *range(1500))
    long = " OR ".join(f"n = {2000 + n}" for n in range(600))
    found, offset, code = await pull(raw, long)
    assert (found, code) == ([], 20)
    assert 1 <= offset <= 32
    listed = ", ".join(f"'{2000 + n}'" for n in range(600))
    assert await pull(raw, f"n IN ({listed})") == ([], 1024, 20), "this takes no longer than one"


async def test_a_held_pull_wakes_for_what_passes_alone(raw: Raw) -> None:
    await send(raw, 1)
    held = spawn(pull(raw, "n = 7", 1, sys_flag=6, suspend_timeout_millis=15_000), name="pull")
    broker = raw.cluster.broker
    await eventually(lambda: len(broker.components.long_polls) == 1)
    for n in (2, 3, 4):
        await send(raw, n)
    await eventually(lambda: len(broker.components.long_polls) == 1)
    assert not held.done()
    await send(raw, 5, 7, 8)
    assert await held == ([5], 7, 0)


async def test_a_held_pull_that_sees_nothing_goes_on_behind_what_it_saw(raw: Raw) -> None:
    held = spawn(pull(raw, "n = 7", sys_flag=6, suspend_timeout_millis=2600), name="pull")
    await eventually(lambda: len(raw.cluster.broker.components.long_polls) == 1)
    await send(raw, 1, 2, 3)
    found, offset, code = await held
    assert (found, offset) == ([], 3)
    assert code in (19, 20)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("n >", "character 4: the end where a property"),
        ("n = 'x", "character 5: a quote that is never closed"),
        ("n", None),
        ("5", "character 1: '5' where a comparison is expected"),
        ("n > 'x'", "character 3: > compares numbers and properties only"),
        ("n = 1 n", "character 7: 'n' where AND, OR or the end is expected"),
        ("(" * 40 + "n = 1" + ")" * 40, "nested deeper than 32"),
        ("n = 1 OR " * 1000 + "n = 1", "at most 8192"),
        ("", "character 1: the end where a property"),
    ],
)
async def test_what_is_no_filter_is_refused_with_its_place(
    raw: Raw, where: str, says: str | None
) -> None:
    answer = await raw.pull(expression_type="SQL92", subscription=where)
    if says is None:
        assert answer.code == 19
        return
    assert answer.code == 23
    assert says in str(answer.remark)
    asked = {"clientId": "c", "group": GROUP, "subscriptionData": {
        "topic": TOPIC, "subString": where, "expressionType": "SQL92"}}  # fmt: skip
    checked = await raw.ask(RequestCode.CHECK_CLIENT_CONFIG, body=orjson.dumps(asked))
    assert (checked.code, checked.remark) == (23, answer.remark)


async def test_the_filter_of_a_heartbeat_serves_pulls_that_name_none(raw: Raw) -> None:
    await send(raw, *range(10))
    subscription = Subscription(
        topic=Topic(TOPIC), expression="n > 7", version=5, expression_type="SQL92"
    )
    consumer = ConsumerData(group=GROUP, subscriptions=(subscription,))
    heartbeat = Heartbeat(client_id="one", consumers=(consumer,))
    assert (await raw.ask(RequestCode.HEART_BEAT, body=heartbeat.to_json())).code == 0
    found = await raw.pull(sys_flag=0, sub_version=5, subscription=None)
    assert [message.body for message in decode_messages(found.body)] == [b"8", b"9"]
    asked = {"clientId": "c", "group": GROUP, "subscriptionData": subscription.to_fields()}
    assert (await raw.ask(RequestCode.CHECK_CLIENT_CONFIG, body=orjson.dumps(asked))).code == 0
    assert (await raw.ask(RequestCode.CHECK_CLIENT_CONFIG, body=b"{}")).code == 0
    assert (await raw.ask(RequestCode.CHECK_CLIENT_CONFIG, body=b"[]")).code == 1
