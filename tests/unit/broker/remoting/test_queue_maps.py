"""Maps with queues as keys, as Java writes them, and producers of a broker."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.groups.groups import Program
from broker_core.broker.groups.producers import Producers
from broker_core.errors import InvalidCommand
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.queue_maps import (
    object_to_json,
    object_with_queue_map,
    queue_map_to_json,
)

_JAVA = (
    b'{"consumeTps":0.5,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
    b'{"brokerOffset":10,"lastTimestamp":1},{"brokerName":"broker-a","queueId":1,"topic":"orders"}:'
    b'{"brokerOffset":0}},"more":[{}]}'
)


def test_what_java_writes_is_read() -> None:
    rest, table = object_with_queue_map(_JAVA, "offsetTable", what="stats")
    assert rest == {"consumeTps": 0.5, "more": [{}]}
    assert table == {
        QueueName(Topic("orders"), "broker-a", 0): {"brokerOffset": 10, "lastTimestamp": 1},
        QueueName(Topic("orders"), "broker-a", 1): {"brokerOffset": 0},
    }


_TEXT = st.text(max_size=8)
_QUEUES = st.builds(QueueName, _TEXT.map(Topic), _TEXT, st.integers(0, 100))
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(_QUEUES, _VALUES, max_size=4))
def test_what_is_written_is_read_again(table: dict[QueueName, Any]) -> None:
    """With any braces, quotes and colons in names and values."""
    data = object_to_json(
        {"before": b"1", "m": queue_map_to_json(table.items()), "behind": b'"}{:"'}
    )
    assert object_with_queue_map(data, "m", what="map") == ({"before": 1, "behind": "}{:"}, table)


@given(st.integers(0, len(_JAVA) - 1), st.binary(max_size=2))
def test_what_is_broken_is_refused_or_read(at: int, other: bytes) -> None:
    with suppress(InvalidCommand):
        object_with_queue_map(_JAVA[:at] + other + _JAVA[at + 1 :], "offsetTable", what="stats")


def test_an_object_without_the_map_has_an_empty_one() -> None:
    assert object_with_queue_map(b'{"a":1}', "m", what="map") == ({"a": 1}, {})


@pytest.mark.parametrize("broken", [b'{"m":{{"topic":"t"', b'{"m":{{}1}}', b'{"m":{,}}'])
def test_a_map_without_end_or_colon_is_refused(broken: bytes) -> None:
    with pytest.raises(InvalidCommand, match="map"):
        object_with_queue_map(broken, "m", what="map")


def test_producers_stay_while_they_are_heard_over_the_same_connection() -> None:
    producers: Producers[str] = Producers()
    one, two = Group("one"), Group("two")
    java = Program("JAVA", 479)
    producers.heartbeat("a", "wire 1", [one, two], now_ns=0, expiry_ns=10, program=java)
    producers.heartbeat("b", "wire 2", [one], now_ns=5, expiry_ns=10)
    assert producers.connections(one) == ["wire 1", "wire 2"]
    assert producers.clients(two)["a"].program == java
    producers.excuse(1)
    producers.expire(11)
    assert sorted(producers.clients(one)) == ["a", "b"]
    producers.expire(12)
    assert (list(producers.clients(one)), list(producers)) == (["b"], [one])
    producers.unregister("b", two)
    producers.connection_closed("wire 1")
    assert list(producers.clients(one)) == ["b"]
    producers.connection_closed("wire 2")
    assert list(producers) == []
