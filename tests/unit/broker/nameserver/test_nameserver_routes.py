"""Routes: the brokers that are alive, and the answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_core.errors import InvalidCommand
from broker_core.names import Topic
from broker_core.nameserver.routes import EXPIRY_NS, ORDER_TOPICS, Registration, Routes
from broker_core.remoting.nameserver_headers import BrokerHeader
from broker_core.remoting.route_bodies import DataVersion, TopicConfig


def registration(
    broker: str = "broker-a",
    *,
    topics: tuple[str, ...] = ("orders",),
    connection: str = "c1",
    address: str = "127.0.0.1:1",
    broker_id: int = 0,
    queues: int = 4,
    now_ns: int = 0,
) -> Registration:
    return Registration(
        header=BrokerHeader(
            broker_name=broker, broker_addr=address, cluster_name="c", broker_id=broker_id
        ),
        topics={
            Topic(name): TopicConfig(topic=Topic(name), read_queues=queues, write_queues=queues)
            for name in topics
        },
        connection=connection,
        expires_ns=now_ns + EXPIRY_NS,
    )


@pytest.fixture
def routes() -> Routes:
    routes = Routes()
    routes.register(registration("broker-b", address="127.0.0.1:2", connection="c2", queues=8))
    routes.register(registration("broker-a", topics=("orders", "payments")))
    return routes


def test_a_route_lists_the_topic_s_brokers_by_name(routes: Routes) -> None:
    route = routes.route(Topic("orders"))
    assert route is not None
    assert [(q.broker, q.read_queues) for q in route.queues] == [("broker-a", 4), ("broker-b", 8)]
    assert [b.addresses for b in route.brokers] == [{0: "127.0.0.1:1"}, {0: "127.0.0.1:2"}]
    assert routes.route(Topic("unknown")) is None
    assert routes.topics() == ["orders", "payments"]


def test_clusters_name_all_brokers(routes: Routes) -> None:
    table = routes.clusters()
    assert table.clusters == {"c": ("broker-a", "broker-b")}
    assert table.brokers["broker-b"].addresses == {0: "127.0.0.1:2"}


def test_a_closed_connection_drops_what_it_registered(routes: Routes) -> None:
    assert [gone.header.broker_name for gone in routes.connection_closed("c1")] == ["broker-a"]
    assert routes.topics() == ["orders"]


def test_the_end_of_an_old_connection_does_not_drop_a_broker_that_came_back(
    routes: Routes,
) -> None:
    routes.register(registration("broker-a", connection="c3"))
    assert routes.connection_closed("c1") == []
    assert routes.topics() == ["orders"]


def test_silence_drops_a_broker_at_its_expiry_and_a_registration_prolongs(routes: Routes) -> None:
    routes.register(registration("broker-a", now_ns=1))
    assert [gone.header.broker_name for gone in routes.expire(EXPIRY_NS)] == ["broker-b"]
    assert routes.expire(EXPIRY_NS) == []
    assert len(routes.expire(EXPIRY_NS + 1)) == 1
    assert routes.topics() == []


def test_a_registration_adds_topics_and_one_on_a_new_connection_replaces_them(
    routes: Routes,
) -> None:
    """Brokers of 5.x register a new topic alone."""
    assert routes.register(registration("broker-a", topics=("other",), queues=2)) is not None
    assert routes.topics() == ["orders", "other", "payments"]
    routes.register(registration("broker-a", topics=("other",), connection="c3"))
    assert routes.topics() == ["orders", "other"]


def test_a_deleted_topic_has_no_route_until_it_is_registered_again(routes: Routes) -> None:
    routes.delete_topic(Topic("orders"))
    routes.delete_topic(Topic("unknown"))
    assert routes.route(Topic("orders")) is None
    assert routes.topics() == ["payments"]
    routes.register(registration("broker-a", topics=("orders",)))
    assert routes.topics() == ["orders", "payments"]


def test_a_refreshed_member_stays_alive_and_its_version_is_returned(routes: Routes) -> None:
    version = DataVersion(5, 6, 7)
    routes.register(replace(registration("broker-a"), version=version, lifetime_ns=10))

    def refreshed(of: Registration, connection: str = "c1") -> DataVersion | None:
        return routes.refresh(of.header, connection=connection, now_ns=EXPIRY_NS)

    assert refreshed(registration("broker-a")) == version
    assert refreshed(registration("broker-a"), "c2") is None, "its topics would not be added to"
    assert refreshed(registration("unknown")) is None
    assert refreshed(registration("broker-a", address="127.0.0.1:9")) is None
    assert [gone.header.broker_name for gone in routes.expire(EXPIRY_NS + 9)] == ["broker-b"]
    assert len(routes.expire(EXPIRY_NS + 10)) == 1


def test_topics_and_values_beyond_the_limits_are_refused(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_core.nameserver.routes.MAX_TOPICS", 3)
    routes.register(registration("broker-a", topics=("third",)))
    with pytest.raises(InvalidCommand, match="registers 4 topics: at most 3 are allowed"):
        routes.register(registration("broker-a", topics=("fourth",)))
    assert routes.topics() == ["orders", "payments", "third"]

    monkeypatch.setattr("broker_core.nameserver.routes.MAX_VALUE_CHARS", 10)
    routes.put_value("n", "k", value="12345678")
    routes.put_value("n", "k", value="87654321")
    with pytest.raises(InvalidCommand, match="has 1 characters, 10 are stored: at most 10"):
        routes.put_value("n", "", value="1")
    routes.delete_value("n", "k")
    routes.put_value("m", "", value="123456789")


def test_only_the_address_that_registered_may_unregister(routes: Routes) -> None:
    stranger = registration("broker-a", address="127.0.0.1:9").header
    assert routes.unregister(stranger) is None
    assert routes.unregister(registration("broker-a").header) is not None
    assert routes.topics() == ["orders"]


def test_a_slave_adds_its_address_and_the_master_s_topics_count(routes: Routes) -> None:
    routes.register(
        registration("broker-a", broker_id=1, address="127.0.0.1:7", topics=("orders", "late"))
    )
    assert routes.clusters().brokers["broker-a"].addresses == {0: "127.0.0.1:1", 1: "127.0.0.1:7"}
    assert routes.topics() == ["orders", "payments"]


def test_an_address_under_a_new_id_is_one_member(routes: Routes) -> None:
    routes.register(registration("broker-a", broker_id=1))
    assert routes.clusters().brokers["broker-a"].addresses == {1: "127.0.0.1:1"}


def test_order_configuration_is_part_of_the_route(routes: Routes) -> None:
    routes.put_value(ORDER_TOPICS, "orders", value="broker-a:4")
    route = routes.route(Topic("orders"))
    assert route is not None
    assert route.order_conf == "broker-a:4"
    routes.delete_value(ORDER_TOPICS, "orders")
    assert routes.values(ORDER_TOPICS) == {}
    assert routes.value("other", "x") is None
