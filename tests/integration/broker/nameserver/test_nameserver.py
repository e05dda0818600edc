"""The nameserver over loopback."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.broker import Broker, BrokerSettings
from broker_core.broker.topics.topics import SYSTEM_TOPICS
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import BrokerError, StoreError
from broker_core.names import Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.bodies import table_from_json
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand, SerializeType
from broker_core.remoting.headers import CreateTopicHeader, TopicHeader
from broker_core.remoting.nameserver_headers import (
    BrokerHeader,
    KvKeyHeader,
    KvNamespaceHeader,
    PutKvHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponse,
)
from broker_core.remoting.route_bodies import (
    BrokerRegistration,
    ClusterTable,
    DataVersion,
    TopicConfig,
    TopicRoute,
    topic_list_from_json,
)
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.store.tables import JsonTable

ORDERS = Topic("orders")
BODY = BrokerRegistration(topics={ORDERS: TopicConfig(topic=ORDERS)}).to_json()


class Client:
    """One connection to a nameserver."""

    def __init__(self, address: str) -> None:
        self.pool = ConnectionPool()
        self.address = address

    async def ask(
        self, code: int, ext: dict[str, str] | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        command = RemotingCommand(code, ext=ext or {}, body=body)
        return await self.pool.request(self.address, command, timeout_s=20)

    async def register(self, body: bytes = BODY, **changes: object) -> RemotingCommand:
        fields = {
            "broker_name": "broker-a",
            "broker_addr": "127.0.0.1:10911",
            "cluster_name": "c",
            "broker_id": 0,
            "ha_server_addr": "127.0.0.1:10912",
            "body_crc32": zlib.crc32(body) & 0x7FFFFFFF,
        }
        header = RegisterBrokerHeader(**(fields | changes))  # type: ignore[arg-type]
        return await self.ask(RequestCode.REGISTER_BROKER, header.to_ext(), body=body)

    async def topics(self) -> list[Topic]:
        answer = await self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return topic_list_from_json(answer.body)


@pytest.fixture
async def nameserver() -> AsyncIterator[NameServer]:
    nameserver = NameServer()
    await nameserver.start()
    yield nameserver
    await nameserver.close()


@pytest.fixture
async def broker(nameserver: NameServer) -> AsyncIterator[Client]:
    client = Client(nameserver.address)
    yield client
    await client.pool.close()


@pytest.fixture
async def client(nameserver: NameServer) -> AsyncIterator[Client]:
    client = Client(nameserver.address)
    yield client
    await client.pool.close()


async def test_a_registered_topic_has_a_route(broker: Client, client: Client) -> None:
    assert (await broker.register()).code == 0
    answer = await client.ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicHeader(topic="orders").to_ext()
    )
    route = TopicRoute.from_json(answer.body)
    assert route.brokers[0].addresses == {0: "127.0.0.1:10911"}
    assert await client.topics() == ["orders"]

    answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert ClusterTable.from_json(answer.body).clusters == {"c": ("broker-a",)}


async def test_a_5_x_client_in_the_binary_form_is_answered_in_it(
    broker: Client, client: Client
) -> None:
    await broker.register()
    command = RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        ext={"topic": "orders", "acceptStandardJsonOnly": "true", "ns": "x", "lo": "false"},
        version=479,
        serialize=SerializeType.ROCKETMQ,
    )
    answer = await client.pool.request(client.address, command, timeout_s=20)
    assert answer.serialize is SerializeType.ROCKETMQ
    assert TopicRoute.from_json(answer.body).queues[0].broker == "broker-a"


async def test_an_unknown_topic_is_answered_17(client: Client) -> None:
    answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nope"})
    assert answer.code == 17
    assert answer.remark == "No topic route info in name server for the topic: nope"


async def test_a_broker_is_dropped_when_it_leaves_or_its_connection_ends(
    broker: Client, client: Client, nameserver: NameServer
) -> None:
    await broker.register()
    header = BrokerHeader(
        broker_name="broker-a", broker_addr="127.0.0.1:10911", cluster_name="c", broker_id=0
    )
    await broker.ask(RequestCode.UNREGISTER_BROKER, header.to_ext())
    assert await client.topics() == []

    other = Client(nameserver.address)
    await other.register()
    assert await client.topics() == ["orders"]
    await other.pool.close()
    async for topics in _polled(client):
        if topics == []:
            break


async def _polled(client: Client) -> AsyncIterator[list[Topic]]:
    for _ in range(1000):
        yield await client.topics()
    raise AssertionError("the broker was not dropped")


async def test_a_slave_learns_its_master(broker: Client) -> None:
    await broker.register()
    answer = await broker.register(broker_id=1, broker_addr="127.0.0.1:20911")
    assert RegisterBrokerResponse.from_ext(answer.ext) == RegisterBrokerResponse(
        master_addr="127.0.0.1:10911", ha_server_addr="127.0.0.1:10912"
    )


@pytest.mark.parametrize(
    ("change", "body", "remark"),
    [
        ({"body_crc32": 5}, BODY, "bodyCrc32 says 5"),
        ({"compressed": True}, BODY, "compressed registration is not zlib"),
        ({"broker_addr": "here"}, BODY, "brokerAddr is 'here': expected host:port"),
        ({"broker_name": ""}, BODY, "brokerName is ''"),
        ({"cluster_name": "c" * 256}, BODY, "clusterName is 'cccc"),
        ({"heartbeat_timeout_millis": 0}, BODY, "heartbeatTimeoutMillis is 0: expected 1 to"),
        ({}, BODY.replace(b":16", b":-1"), "readQueueNums is -1: expected 0 to 2147483647"),
        ({}, b"{", "registration is not JSON"),
        ({}, b"{}", "registration.topicConfigSerializeWrapper is missing: expected an object"),
    ],
)
async def test_a_bad_registration_is_refused_with_its_reason(
    broker: Client, change: dict[str, object], body: bytes, remark: str
) -> None:
    answer = await broker.register(body, **change)
    assert answer.code == 1
    assert remark in str(answer.remark)
    assert await broker.topics() == []


@pytest.mark.parametrize("said", [True, False])
async def test_a_compressed_registration_is_as_good(
    broker: Client, client: Client, said: bool
) -> None:
    """Brokers of 5.3 compress without setting the header field."""
    topic = b"orders 4 8 6 SINGLE_TAG"
    parts = (b'{"timestamp":5,"counter":6}', topic, b"[]")
    version, first, servers = (len(part).to_bytes(4, "big") + part for part in parts)
    body = zlib.compress(version + b"\0\0\0\1" + first + servers)
    assert (await broker.register(body, compressed=said)).code == 0
    route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    assert TopicRoute.from_json(route.body).queues[0].write_queues == 8


async def test_a_broker_asks_whether_it_must_register_again(broker: Client) -> None:
    header = {
        "brokerName": "broker-a", "brokerAddr": "127.0.0.1:10911", "clusterName": "c",
        "brokerId": "0",
    }  # fmt: skip
    code = RequestCode.QUERY_DATA_VERSION
    mine = DataVersion(5, 6)
    answer = await broker.ask(code, header, body=mine.to_json())
    assert (answer.ext, answer.body) == ({"changed": "true"}, b"")
    content = BrokerRegistration(topics={}, version=mine)
    await broker.register(content.to_json())
    answer = await broker.ask(code, header, body=mine.to_json())
    assert (answer.ext, DataVersion.from_json(answer.body)) == ({"changed": "false"}, mine)
    answer = await broker.ask(code, header, body=DataVersion(5, 7).to_json())
    assert (answer.ext, DataVersion.from_json(answer.body)) == ({"changed": "true"}, mine)
    assert (await broker.ask(code, header)).code == 1


async def test_a_topic_can_be_taken_off_all_brokers(broker: Client) -> None:
    await broker.register()
    answer = await broker.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})
    assert (answer.code, await broker.topics()) == (0, [])


async def test_our_broker_never_registers_one_topic_alone_which_would_mean_an_addition(
    tmp_path: Path,
) -> None:
    """Nameservers of 5.x refuse that from a broker that they do not know yet."""

    class Strict(NameServer):
        def _register(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
            topics = BrokerRegistration.from_json(request.body).topics
            if len(topics) == 1 and not self._routes.clusters().brokers:
                raise BrokerError(1, "register broker failed")
            return super()._register(request, channel)

    nameserver = Strict()
    await nameserver.start()
    settings = BrokerSettings.model_validate(
        {
            "data": tmp_path, "listen": "127.0.0.1:0", "nameserver": nameserver.address,
            "segment_bytes": 8 * 1024 * 1024,
        }
    )  # fmt: skip
    client = Client(nameserver.address)
    for _ in range(2):
        broker = Broker(settings)
        await broker.start()
        create = CreateTopicHeader(topic=ORDERS, read_queue_nums=4, write_queue_nums=4)
        maker = Client(broker.address)
        assert (await maker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create.to_ext())).code == 0
        assert set(await client.topics()) == {ORDERS, *SYSTEM_TOPICS}
        await maker.pool.close()
        await broker.close()
        assert await client.topics() == []
    await client.pool.close()
    await nameserver.close()


async def test_values_are_kept_listed_and_deleted(client: Client) -> None:
    key = KvKeyHeader(namespace="ORDER_TOPIC_CONFIG", key="orders").to_ext()
    namespace = KvNamespaceHeader(namespace="ORDER_TOPIC_CONFIG").to_ext()
    put = PutKvHeader(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4").to_ext()
    assert (await client.ask(RequestCode.GET_KV_CONFIG, key)).code == 22
    assert (await client.ask(RequestCode.PUT_KV_CONFIG, put)).code == 0
    assert (await client.ask(RequestCode.GET_KV_CONFIG, key)).ext == {"value": "broker-a:4"}
    answer = await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace)
    assert table_from_json(answer.body) == {"orders": "broker-a:4"}
    answer = await client.register()
    assert table_from_json(answer.body) == {"orders": "broker-a:4"}
    assert (await client.ask(RequestCode.DELETE_KV_CONFIG, key)).code == 0
    assert (await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace)).code == 22


async def test_a_missing_field_and_an_unknown_code_are_said_clearly(client: Client) -> None:
    answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert (answer.code, answer.remark) == (1, "header field topic is missing: expected a text")
    answer = await client.ask(4711)
    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")


async def test_values_outlive_a_restart_where_there_is_a_folder(tmp_path: Path) -> None:
    """In the same file as RocketMQ's own nameserver."""
    for number in range(2):
        server = NameServer(data=tmp_path / "values")
        await server.start()
        client = Client(server.address)
        try:
            if not number:
                for key in ("kept", "gone"):
                    put = PutKvHeader(namespace="n", key=key, value="1")
                    await client.ask(RequestCode.PUT_KV_CONFIG, put.to_ext())
                gone = KvKeyHeader(namespace="n", key="gone")
                await client.ask(RequestCode.DELETE_KV_CONFIG, gone.to_ext())
            namespace = KvNamespaceHeader(namespace="n").to_ext()
            found = await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace)
            assert table_from_json(found.body) == {"kept": "1"}
        finally:
            await client.pool.close()
            await server.close()


async def test_a_value_that_was_not_saved_is_not_stored_and_is_saved_when_it_is_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    key = KvKeyHeader(namespace="n", key="k").to_ext()
    puts = [PutKvHeader(namespace="n", key="k", value=value).to_ext() for value in ("1", "2")]
    saved = JsonTable(tmp_path / "values" / "kvConfig.json")
    server = NameServer(data=tmp_path / "values")
    await server.start()
    client = Client(server.address)
    try:
        assert (await client.ask(RequestCode.PUT_KV_CONFIG, puts[0])).code == 0
        with monkeypatch.context() as patched:
            patched.setattr(JsonTable, "save_bytes", full)
            for _ in range(2):
                answer = await client.ask(RequestCode.PUT_KV_CONFIG, puts[1])
                assert (answer.code, answer.remark) == (
                    1,
                    "the value was not saved: No space left on device",
                )
            assert (await client.ask(RequestCode.DELETE_KV_CONFIG, key)).code == 1
            assert (await client.ask(RequestCode.GET_KV_CONFIG, key)).ext == {"value": "1"}
        saved.save({"configTable": {}})  # a failed save may have written anything
        assert (await client.ask(RequestCode.PUT_KV_CONFIG, puts[0])).code == 0
        assert saved.load() == {"configTable": {"n": {"k": "1"}}}
    finally:
        await client.pool.close()
        await server.close()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"configTable": null}', "configTable should be an object of objects"),
        ('{"configTable": {"ns": 5}}', "configTable should be an object of objects"),
        ('{"configTable": {"ns": {"k": 5}}}', "value 'k' of namespace 'ns' should be a text"),
        ('{"configTable": {"ns": {"k": null}}}', "value 'k' of namespace 'ns' should be a text"),
        ('{"configTable": {"ns": {"k": "%s"}}}' % ("x" * 17_000_000), "at most 16777216"),
    ],
)
async def test_a_nameserver_with_a_wrongly_edited_table_says_why_it_does_not_start(
    tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "kvConfig.json").write_text(content)
    with pytest.raises(StoreError, match=f"kvConfig.json cannot be used: .*{says}"):
        await NameServer(data=tmp_path).start()
