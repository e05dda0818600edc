"""Invalid arguments are refused at the call, in one sentence; errors of sends name the proxy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from orderlane import (
    App,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    KeyBatch,
    Message,
    Producer,
    Puller,
    Retry,
    SendFailed,
    Timing,
)
from thin_client.delivery import Outgoing, Stamp, deliveries
from thin_client.options import guarded, session_options
from thin_client.session import Session
from thrift_idl import producer


@pytest.mark.parametrize("form", [Consumer, AsyncConsumer])
@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"group": 7}, TypeError, "group is 7: expected text"),
        ({"group": ""}, ValueError, "group is empty: expected the name of a consumer group"),
        ({"concurrency": "8"}, TypeError, "concurrency is '8': expected a whole number"),
        ({"concurrency": True}, TypeError, "concurrency is True: expected a whole number"),
        ({"concurrency": 0}, ValueError, "concurrency is 0: expected at least 1"),
        ({"concurrency": 2**31}, ValueError, "concurrency is 2147483648: expected at most 1000000"),
        ({"prefetch": -1}, ValueError, "prefetch is -1: expected 0 or more"),
        ({"max_run": 1.5}, TypeError, "max_run is 1.5: expected a whole number"),
        (
            {"topics": "orders"},
            TypeError,
            r"topics is 'orders': expected a list, as in \['orders'\]",
        ),
        ({"topics": 7}, TypeError, "topics is 7: expected a list of names, or None"),
        (
            {"topics": iter(["a"])},
            TypeError,
            "topics is <list_iterator.*: expected a list of names",
        ),
        ({"topics": [7]}, TypeError, "a name in topics is 7: expected text"),
        ({"topics": []}, ValueError, "topics or a name in it is empty"),
        ({"token": b"x"}, TypeError, r"^token is of type bytes: expected text, or None$"),
        ({"client_id": 1}, TypeError, "client_id is 1: expected text"),
        ({"servers": 9713}, TypeError, "servers is 9713: expected host:port, or a list"),
        ({"servers": ["a:1", 2]}, TypeError, "a proxy's address is 2: expected text"),
    ],
)
def test_options_of_both_consumers(
    form: Callable[..., Any], options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    given = {"servers": "proxy:9713", "group": "billing", **options}
    with pytest.raises(error, match=sentence) as caught:
        form(**given)
    assert "\n" not in str(caught.value)


def test_a_list_of_topics_may_change_later() -> None:
    """A pull without topics would be for all of them."""
    topics = ["orders"]
    options = session_options(
        group="g",
        topics=topics,
        concurrency=1,
        prefetch=None,
        max_run=1,
        client_id=None,
        token=None,
        timing=Timing(),
    )
    topics.clear()

    assert Session(options).begin_pull(1).topics == ["orders"]


@pytest.mark.parametrize("form", [Producer, AsyncProducer])
@pytest.mark.parametrize(
    ("timeout_s", "error"),
    [
        ("10", TypeError),
        (-1, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (10**400, ValueError),
    ],
)
def test_the_timeout_of_producers(
    form: Callable[..., Any], timeout_s: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"timeout_s is .*: expected"):
        form("proxy:9713", timeout_s=timeout_s)


@pytest.mark.parametrize("name", ["ack_linger_s", "request_timeout_s", "drain_timeout_s"])
def test_times_are_numbers_of_seconds(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is '3': expected a number of seconds"):
        Timing(**{name: "3"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{name} is inf: expected at most 1000000000 seconds"):
        Timing(**{name: float("inf")})
    with pytest.raises(TypeError, match="after_s is '3': expected a number of seconds"):
        Retry(after_s="3")  # type: ignore[arg-type]


def test_a_failed_send_names_the_proxy() -> None:
    stamp = Stamp(None, lambda properties: None, lambda: 0.0)
    (request,) = deliveries([Outgoing("orders", b"x", key="a")], deadline_ns=0, stamp=stamp)
    request.ask("proxy:9713")
    with pytest.raises(SendFailed, match="sending to orders at proxy:9713 failed: no such topic"):
        request.pause_after(producer.Result(code=11, msg="no such topic"), now_ns=1, jitter=0.5)


def message(key: str | None) -> Message:
    return Message("orders", "q", 0, b"", key, b"o", None, {}, 1, None, None, 1, 0)


@pytest.mark.parametrize(
    ("keys", "key"), [(["a", "a"], "a"), ([None], None), (["a", "b"], None), (["a", None], None)]
)
def test_a_batch_has_the_key_that_all_its_messages_have(
    keys: list[str | None], key: str | None
) -> None:
    assert KeyBatch([message(each) for each in keys], guarded(None)).key == key


@pytest.mark.parametrize(
    ("found", "text"), [(b"customer-7", "customer-7"), (b"\xff\x01", "0xff01"), (None, None)]
)
def test_both_keys_are_texts(found: bytes | None, text: str | None) -> None:
    """The order key's bytes are beside it; they need not be UTF-8."""
    delivered = replace(message("k"), order_key_bytes=found)
    assert (delivered.key, delivered.order_key) == ("k", text)
    batch = KeyBatch([delivered], guarded(None))
    assert (batch.order_key, batch.order_key_bytes) == (text, found)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": ""}, "group is empty: expected the name of a consumer group"),
        ({"servers": "proxy:x"}, "'proxy:x' is not a proxy address: expected host:port"),
        ({"token": 7}, "token is of type int: expected text, or None"),
    ],
)
def test_an_app_checks_its_options_at_the_call(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        App(**{"servers": "proxy:9713", "group": "billing", **options})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"concurrency": 0}, "concurrency is 0: expected at least 1"),
        ({"prefetch": "all"}, "prefetch is 'all': expected a whole number of at least 0"),
        ({"batch_by": "key", "max_batch": 0}, "max_batch is 0: expected at least 1"),
    ],
)
def test_an_app_checks_those_of_a_handler_too(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        App("proxy:9713", group="billing").on("orders", **options)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (("orders", b"x"), r"a message to send is \('orders', b'x'\): expected Outgoing"),
        (
            Outgoing("orders", b"", properties=[("a", "b")]),  # type: ignore[arg-type]
            r"properties of a message to orders is \[\('a', 'b'\)\]: expected a dict of texts",
        ),
        (Outgoing(7, b""), "topic is 7: expected text"),  # type: ignore[arg-type]
        (Outgoing("orders", b"", 7), "key of a message to orders is 7: expected text"),  # type: ignore[arg-type]
        (
            Outgoing("orders", b"", sharding_key=b"k"),  # type: ignore[arg-type]
            "sharding_key of a message to orders is b'k': expected text",
        ),
        (
            Outgoing("orders", b"", properties={"n": 1}),  # type: ignore[dict-item]
            "property 'n' of a message to orders is 1: expected texts",
        ),
        (
            Outgoing("orders", b"", delay_s="5"),  # type: ignore[arg-type]
            "delay_s of a message to orders is '5': expected a number of seconds",
        ),
    ],
)
def test_fields_of_a_message(message: Any, sentence: str) -> None:
    stamp = Stamp(None, lambda properties: None, lambda: 0.0)
    with pytest.raises(TypeError, match=sentence):
        deliveries([message], deadline_ns=0, stamp=stamp)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": 7}, "group is 7: expected text"),
        ({"topics": "orders"}, "topics is 'orders': expected a list"),
        ({"timeout_s": "3"}, "timeout_s is '3': expected a number of seconds"),
    ],
)
def test_options_of_a_puller(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        Puller("proxy:9713", **{"group": "billing", **options})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"max_messages": 0}, "max_messages is 0: expected at least 1"),
        ({"max_messages": 2**31}, "max_messages is 2147483648: expected at most 1000000"),
        ({"max_messages": 1.5}, "max_messages is 1.5: expected a whole number"),
        ({"wait_s": -1}, "wait_s is -1: expected 0 or more seconds"),
        ({"wait_s": math.inf}, "wait_s is inf: expected at most"),
    ],
)
def test_arguments_of_a_pull(arguments: dict[str, Any], sentence: str) -> None:
    """Refused before a connection: for a proxy 0 messages means as many as it has."""
    with pytest.raises((TypeError, ValueError), match=sentence):
        Puller("127.0.0.1:1", group="billing").pull(**arguments)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, 0.0001, "5"])
def test_an_extension_takes_a_time(seconds: Any) -> None:
    message = cast(Message, None)
    with pytest.raises((TypeError, ValueError), match=r"seconds is .*: expected"):
        Puller("127.0.0.1:1", group="billing").extend(message, seconds)


@pytest.mark.parametrize(
    ("topic", "delay_id", "sentence"),
    [
        (7, "id", "topic is 7: expected text"),
        ("orders", 7, "delay_id is 7: expected text"),
        ("orders", "", "topic is 'orders' and delay_id '': expected neither empty"),
        ("orders", "\ud800", "in a message to orders is not valid text"),
    ],
)
def test_arguments_of_a_cancellation(topic: Any, delay_id: Any, sentence: str) -> None:
    """Refused at the call: the codec's error would come after the connection, or in the loop."""
    with pytest.raises((TypeError, ValueError), match=sentence):
        Producer("proxy:9713").cancel(topic, delay_id)


def test_the_name_of_a_queue_is_text() -> None:
    with pytest.raises(ValueError, match="in a message to orders is not valid text"):
        Producer("proxy:9713").send("orders", b"x", queue="\ud800_1")
