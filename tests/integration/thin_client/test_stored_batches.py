"""L3 end to end: what the broker stores of a producer's batches."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from broker_core.remoting.message import StoredMessage
from proxy.upstream.records.queue_range import read_range
from testkit.brokers import Brokers
from testkit.gateway import Gateway, run_gateway
from tests.integration.thin_client.both_producers import both
from thin_client import Outgoing

_KEYS = ("a", " b ", "c\t", "😀", "", None)


def _message(gateway: Gateway, number: int, name: str) -> Outgoing:
    key = _KEYS[number % len(_KEYS)]
    properties = {"UNIQ_KEY": f"{name}-{number}", "n": str(number), "größe": "1 m"}
    if number % 5 == 0:
        properties["tombstone"] = "true"
    return Outgoing(
        gateway.topic,
        bytes([number]) * (number + 1),
        key=key,
        tag="t" if number % 2 else None,
        properties=properties,
        queue=None if (key or "").strip() else 2,
    )


@both
async def test_a_batch_is_stored_as_single_messages_are(
    brokers: Brokers, tmp_path: Path, kind: Any
) -> None:
    """In the same queues, in the same order, with the same content; single sends of the same keys
    before and after it keep their places.
    """
    async with run_gateway(tmp_path, brokers=brokers, queues=3) as gateway:
        proxy = (await gateway.start_proxy())[1].thrift
        async with kind(proxy) as sender:
            for number in range(100, 112):
                await sender.send_batch([_message(gateway, number, "x")])
            await sender.send_batch([_message(gateway, number, "x") for number in range(100)])
            for number in range(100, 112):
                await sender.send_batch([_message(gateway, number, "x")])
        stored = await _read(gateway, 124)

    numbers: dict[str | None, list[int]] = defaultdict(list)
    queues: dict[str | None, set[int]] = defaultdict(set)
    for each in stored:
        number = int(each.properties["n"])
        numbers[each.key].append(number)
        queues[each.key].add(each.queue_id)
        if number >= 100:
            continue
        key = _KEYS[number % len(_KEYS)]
        expected = {"UNIQ_KEY": f"x-{number}", "n": str(number), "größe": "1 m"}
        if number % 5 == 0:
            expected["tombstone"] = "true"
        expected |= {"KEYS": key} if key else {}
        expected |= {"TAGS": "t"} if number % 2 else {}
        assert {name: each.properties[name] for name in expected} == expected
        assert each.body == bytes([number]) * (number + 1)
        assert each.key == (key or None)
    for key, found in numbers.items():
        ends = [n for n in range(100, 112) if (_KEYS[n % len(_KEYS)] or None) == key]
        batch = [n for n in range(100) if (_KEYS[n % len(_KEYS)] or None) == key]
        assert found == ends + batch + ends
        assert len(queues[key]) == 1


async def _read(gateway: Gateway, count: int) -> list[StoredMessage]:
    client = gateway.client
    found: list[StoredMessage] = []
    for queue in await client.queues(gateway.topic, fresh=True):
        end = await client.max_offset(queue)
        found += [
            each async for each in read_range(client, queue, group=gateway.group, start=0, end=end)
        ]
    assert len(found) == count
    return found
