"""sendDelaySync through a proxy's producer service, to real brokers."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.broker_client import BrokerClient
from broker_core.client.delays import Delays
from broker_core.clock import wall_ms
from broker_core.names import Group, Topic
from broker_core.remoting.recall_handle import RecallHandle
from proxy.downstream.port.server import ThriftServer
from proxy.downstream.producer_service import ProducerService
from proxy.history.record import NullHistory
from proxy.settings.proxy_settings import LimitSettings
from testkit.broker_process import Cluster, run_broker
from testkit.brokers import Brokers
from testkit.thrift_client import ThriftClient, connect
from thin_client import AsyncProducer, Producer, SendFailed
from thrift_idl import producer

TOPIC = Topic("orders")
GROUP = Group("billing")
ADD, CANCEL = 1, 2


@asynccontextmanager
async def listening(client: BrokerClient) -> AsyncIterator[int]:
    """Return the port of a producer service that sends through *client*."""
    service = ProducerService(client, NullHistory(), max_body_bytes=1000)
    server = ThriftServer(service.entries(), LimitSettings())
    try:
        yield await server.listen("127.0.0.1", 0)
    finally:
        await server.close()


@asynccontextmanager
async def serving(client: BrokerClient) -> AsyncIterator[ThriftClient]:
    async with listening(client) as port, connect(port) as connected:
        yield connected


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as running:
        yield running


async def ask(thin: ThriftClient, timeout_ms: int = 20_000, **fields: Any) -> Any:
    given = {"topic": TOPIC, "tags": "t", "action": ADD, "dmsgtype": 2, "body": b"later", **fields}
    return await thin.call("sendDelaySync", producer.DelayMessage(**given), timeout_ms)


async def test_a_message_comes_at_its_second_to_any_broker(
    brokers: Brokers, tmp_path: Path
) -> None:
    """Brokers of 4.9 have a level for it."""
    async with brokers.run(tmp_path) as cluster:
        queues = await cluster.create_topic("delay-requests", queues=1)
        client = await cluster.client()
        async with serving(client) as thin:
            request: dict[str, Any] = {
                "topic": "delay-requests",
                "timestamp": wall_ms() // 1000 + 1,
                "properties": {"UNIQ_KEY": "id-1", "KEYS": "k", "own": "o"},
            }
            result = await ask(thin, **request)
            while (
                result.code == 10
            ):  # a broker of 5.3 does not report its features in its first second
                await asyncio.sleep(0.1)
                request["timestamp"] = wall_ms() // 1000 + 1
                result = await ask(thin, **request)
            assert result.msg == "OK", result.msg
            assert result.uniqDelayMsgId
        pulled = await client.pull(queues[0], group=GROUP, offset=0, suspend_ms=15_000)
        (message,) = pulled.messages
        assert (message.body, message.message_id, message.key, message.tag) == (
            b"later", "id-1", "k", "t",
        )  # fmt: skip
        assert message.properties["own"] == "o"
        assert message.store_ms >= request["timestamp"] * 1000 - 1000, (
            "Apache's timers keep to the second"
        )


async def test_a_cancelled_message_does_not_come_whichever_proxy_is_asked(
    cluster: Cluster,
) -> None:
    queue = (await cluster.create_topic(TOPIC, queues=1))[0]
    client = await cluster.client()
    async with serving(client) as one, serving(await cluster.client("two")) as two:
        timestamp = wall_ms() // 1000 + 4  # the machine may be suspended before it is cancelled
        added = await ask(one, timestamp=timestamp, body=b"cancelled")
        cancel = {"action": CANCEL, "uniqDelayMsgId": added.uniqDelayMsgId, "body": None}
        cancelled = await ask(two, **cancel)
        assert (cancelled.code, cancelled.uniqDelayMsgId) == (0, added.uniqDelayMsgId)
        kept = await ask(one, timestamp=timestamp, body=b"kept")
        again = await ask(one, **cancel)
        assert (again.code, "does not wait" in again.msg) == (30, True)
        pulled = await client.pull(queue, group=GROUP, offset=0, suspend_ms=15_000)
        assert [m.body for m in pulled.messages] == [b"kept"]
        late = await ask(one, action=CANCEL, uniqDelayMsgId=kept.uniqDelayMsgId)
        assert late.code == 30
    assert await client.max_offset(queue) == 1


async def test_a_message_due_in_the_past_comes_at_once(cluster: Cluster) -> None:
    queue = (await cluster.create_topic(TOPIC, queues=1))[0]
    client = await cluster.client()
    async with serving(client) as thin:
        result = await ask(thin, timestamp=wall_ms() // 1000)
        assert result.code == 0
        assert (await client.pull(queue, group=GROUP, offset=0)).messages[0].body == b"later"
        unknown = await ask(thin, action=CANCEL, uniqDelayMsgId=result.uniqDelayMsgId)
        assert (unknown.code, "names no message" in unknown.msg) == (30, True)


async def test_refused_delays_have_ddmqs_code_and_a_sentence(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = (await cluster.create_topic(TOPIC, queues=1))[0]
    client = await cluster.client()
    soon = wall_ms() // 1000 + 100
    elsewhere = RecallHandle(TOPIC, "broker-z", soon * 1000, "id", 64).to_text()
    retried = RecallHandle("%RETRY%billing", "broker-a", soon * 1000, "id", 64).to_text()
    async with serving(client) as thin:
        for fields, code, says in (
            ({"timestamp": soon, "dmsgtype": 3}, 31, "dmsgtype 3: only 2"),
            ({"timestamp": soon, "dmsgtype": 4}, 31, "dmsgtype 4"),
            ({"action": 3}, 32, "action 3: 1 adds, 2 cancels"),
            ({}, 33, "timestamp None"),
            ({"timestamp": soon * 1000}, 33, "expected seconds since 1970"),
            ({"timestamp": soon, "body": b""}, 11, "a body of 0 bytes"),
            ({"timestamp": soon, "body": bytes(1001)}, 11, "a body of 1001 bytes"),
            ({"timestamp": soon, "properties": {"DELAY": "1"}}, 11, "'DELAY' is reserved"),
            ({"timestamp": soon, "topic": "a/b"}, 11, "not a legal name"),
            ({"timestamp": soon, "topic": "%PARK%x"}, 11, "is internal"),
            ({"timestamp": soon, "topic": "unknown"}, 14, "unknown"),
            ({"timestamp": soon + 30 * 86_400}, 11, "timer_max_delay_s"),
            ({"action": CANCEL}, 30, "uniqDelayMsgId '' names no message"),
            ({"action": CANCEL, "uniqDelayMsgId": "eA=="}, 30, "names no message"),
            ({"action": CANCEL, "uniqDelayMsgId": elsewhere, "topic": "other"}, 30, "topic orders"),
            ({"action": CANCEL, "uniqDelayMsgId": elsewhere}, 70, "broker-z"),
            ({"action": CANCEL, "topic": "", "uniqDelayMsgId": retried}, 11, "is internal"),
        ):
            result = await ask(thin, **fields)
            assert result.code == code, (fields, result)
            assert _matches(says, result.msg), (fields, result)
        assert (await thin.call("sendDelaySync", None, 100)).code == 11

        async def levels_alone(delays: Delays, broker: str, **_: Any) -> bool:
            return False

        monkeypatch.setattr(Delays, "takes_times", levels_alone)
        refused = await ask(thin, timestamp=soon)
        assert (refused.code, "only the levels" in refused.msg) == (33, True)
    assert await client.max_offset(queue) == 0
    assert len(cluster.broker.components.delayed) == 0
    assert base64.urlsafe_b64decode(elsewhere).startswith(b"v1 orders broker-z ")


def _matches(says: str, text: str) -> bool:
    return re.search(says, text) is not None


@pytest.mark.parametrize("blocking", [True, False])
async def test_the_python_client_delays_and_cancels(cluster: Cluster, blocking: bool) -> None:
    queue = (await cluster.create_topic(TOPIC, queues=1))[0]
    client = await cluster.client()
    async with listening(client) as port:
        address = f"127.0.0.1:{port}"
        if blocking:
            with Producer(address) as producing:
                one = await asyncio.to_thread(
                    producing.send_delayed,
                    TOPIC,
                    b"one",
                    delay_s=0.1,
                    key="k",
                    properties={"a": "b"},
                )
                two = await asyncio.to_thread(producing.send_delayed, TOPIC, b"two", delay_s=60)
                await asyncio.to_thread(producing.cancel, TOPIC, two)
                with pytest.raises(
                    SendFailed, match=r"cancelling a message to orders at \S+ failed"
                ):
                    await asyncio.to_thread(producing.cancel, TOPIC, two)
        else:
            async with AsyncProducer(address) as producing_too:
                one = await producing_too.send_delayed(
                    TOPIC, b"one", delay_s=0.1, key="k", properties={"a": "b"}
                )
                two = await producing_too.send_delayed(TOPIC, b"two", delay_s=60)
                await producing_too.cancel(TOPIC, two)
                with pytest.raises(SendFailed, match="does not wait") as caught:
                    await producing_too.cancel(TOPIC, two)
                assert (caught.value.code, caught.value.outcome_unknown) == (30, False)
                with pytest.raises(ValueError, match="expected neither empty"):
                    await producing_too.cancel(TOPIC, "")
        assert one != two
    pulled = await client.pull(queue, group=GROUP, offset=0, suspend_ms=15_000)
    assert [(m.body, m.key, m.properties["a"]) for m in pulled.messages] == [(b"one", "k", "b")]
    assert len(cluster.broker.components.delayed) == 0
