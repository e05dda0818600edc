"""Rights to end transactions and to see their messages."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from broker_core.names import Topic
from broker_core.remoting.half_place import HalfPlace
from proxy.settings.types import host_port
from testkit.gateway import run_gateway
from testkit.thrift_client import connect
from thrift_idl import producer

SETTINGS: dict[str, Any] = {
    "tokens": [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()}
        for name in ("ann", "bob")
    ],
    "access": [
        {"principals": ["ann"], "may": ["produce"], "topics": ["salaries"]},
        {"principals": ["bob"], "may": ["produce"], "topics": ["orders"]},
    ],
}


async def test_a_caller_ends_only_transactions_of_topics_that_it_may_send_to(
    tmp_path: Path,
) -> None:
    """Also if it names another topic than that of the half message."""
    async with run_gateway(tmp_path) as gateway:
        await gateway.client.create_topic(Topic("salaries"), queues=1)
        _, at = await gateway.start_proxy(**SETTINGS)
        async with connect(host_port(at.thrift)[1]) as client:
            message = producer.Message(topic="salaries", body=b"secret")
            request = producer.PrepareRequest(message, "pay", token="ann")
            half = await client.call("prepareTransaction", request)
            assert half.code == 0
            place = HalfPlace.from_text(half.transaction)
            texts = (
                half.transaction,
                place._replace(topic="orders").to_text(),
                place._replace(topic="orders", group="other").to_text(),
            )
            codes = []
            for text in texts:
                forged = producer.EndRequest(text, 1, token="bob")
                codes.append((await client.call("endTransaction", forged)).code)
            assert codes == [71, 11, 11]
            watch = producer.ChecksRequest("pay", ["orders", "salaries"], 0, token="bob")
            assert (await client.call("transactionChecks", watch)).code == 71
            end = producer.EndRequest(half.transaction, 1, token="ann")
            assert (await client.call("endTransaction", end)).code == 0
            assert (await client.call("endTransaction", end)).code == 0
            other = producer.EndRequest(half.transaction, 2, token="ann")
            assert (await client.call("endTransaction", other)).code == 72


async def test_a_producer_group_belongs_to_those_whose_rules_name_it(tmp_path: Path) -> None:
    """The right to send to the topic does not suffice, if rules name groups."""
    may = {"may": ["produce"], "topics": ["orders"]}
    rules = [
        {"principals": ["ann"], "groups": ["pay"], **may},
        {"principals": ["bob"], "groups": ["ship"], **may},
    ]
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(tokens=SETTINGS["tokens"], access=rules)
        async with connect(host_port(at.thrift)[1]) as client:
            message = producer.Message(topic="orders", body=b"secret")
            half = await client.call(
                "prepareTransaction", producer.PrepareRequest(message, "pay", token="ann")
            )
            assert half.code == 0
            for group, allowed in (("pay", False), ("ship", True)):
                watch = producer.ChecksRequest(group, ["orders"], 0, token="bob")
                prepare = producer.PrepareRequest(message, group, token="bob")
                codes = [
                    (await client.call("transactionChecks", watch)).code,
                    (await client.call("prepareTransaction", prepare)).code,
                ]
                assert codes == ([0, 0] if allowed else [71, 71]), group
            own = HalfPlace.from_text(half.transaction)
            codes = []
            for text in (half.transaction, own._replace(group="ship").to_text()):
                end = producer.EndRequest(text, 2, token="bob")
                codes.append((await client.call("endTransaction", end)).code)
            assert codes == [71, 11]
            commit = producer.EndRequest(half.transaction, 1, token="ann")
            assert (await client.call("endTransaction", commit)).code == 0
