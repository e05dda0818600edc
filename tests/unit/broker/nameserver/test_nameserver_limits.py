"""Limits of a nameserver on brokers, topics and values."""

from __future__ import annotations

import pytest

from broker_core.errors import InvalidCommand
from broker_core.names import Topic
from broker_core.nameserver import routes as module
from broker_core.nameserver.routes import Routes
from tests.unit.broker.nameserver.test_nameserver_routes import registration


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> Routes:
    monkeypatch.setattr(module, "MAX_MEMBERS", 2)
    monkeypatch.setattr(module, "MAX_TOPICS_IN_ALL", 5)
    monkeypatch.setattr(module, "MAX_TOPICS", 4)
    monkeypatch.setattr(module, "MAX_VALUES", 2)
    return Routes()


def test_the_first_one_too_many_is_refused_and_others_stay(routes: Routes) -> None:
    routes.register(registration("a", topics=("t1", "t2", "t3")))
    routes.register(registration("b", topics=("t4", "t5"), connection="c2", address="h:2"))
    for refused, words in (
        (registration("c", topics=(), connection="c3", address="h:3"), "one more member"),
        (registration("a", topics=("t6",)), "topics up to 6 in all"),
        (registration("a", topics=("t6", "t7")), "5 topics"),
    ):
        with pytest.raises(InvalidCommand, match=words):
            routes.register(refused)
    assert routes.topics() == ["t1", "t2", "t3", "t4", "t5"]
    routes.delete_topic(Topic("t1"))
    routes.register(registration("a", topics=("t6",)))
    assert routes.route(Topic("t6")) is not None
    routes.connection_closed("c2")
    routes.register(registration("c", topics=("t7", "t8"), connection="c3", address="h:3"))
    assert routes.topics() == ["t2", "t3", "t6", "t7", "t8"]


def test_a_broker_that_returns_counts_once(routes: Routes) -> None:
    for connection in ("c1", "c2", "c3"):
        routes.register(registration("a", topics=("t1", "t2", "t3"), connection=connection))
    routes.register(registration("b", topics=("t4", "t5"), connection="c4", address="h:2"))
    with pytest.raises(InvalidCommand, match="in all"):
        routes.register(registration("a", topics=("t6",), connection="c3"))


def test_the_parts_of_a_registration_add_up_and_a_new_connection_starts_over(
    routes: Routes,
) -> None:
    routes.register(registration("a", topics=("t1", "t2")))
    routes.register(registration("a", topics=("t3",)))
    assert routes.topics() == ["t1", "t2", "t3"]
    routes.register(registration("a", topics=("t4",), connection="c2"))
    assert routes.topics() == ["t4"]


def test_values_are_limited_in_number(routes: Routes) -> None:
    routes.put_value("n", "a", value="1")
    routes.put_value("n", "b", value="1")
    with pytest.raises(InvalidCommand, match="there are 2 values, the maximum"):
        routes.put_value("n", "c", value="1")
    routes.put_value("n", "a", value="2")
    routes.delete_value("n", "b")
    routes.delete_value("n", "unknown")
    routes.put_value("m", "c", value="1")
    assert routes.all_values() == {"n": {"a": "2"}, "m": {"c": "1"}}
