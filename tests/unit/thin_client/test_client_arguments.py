"""Invalid arguments are refused at the call, in one sentence; errors of sends name the proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orderlane import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    KeyBatch,
    Message,
    Producer,
    Retry,
    SendFailed,
    Timing,
)
from thin_client.delivery import Outgoing, Stamp, deliveries
from thin_client.options import guarded
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
        ({"prefetch": -1}, ValueError, "prefetch is -1: expected 0 or more"),
        ({"max_run": 1.5}, TypeError, "max_run is 1.5: expected a whole number"),
        (
            {"topics": "orders"},
            TypeError,
            r"topics is 'orders': expected a list, as in \['orders'\]",
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


@pytest.mark.parametrize("form", [Producer, AsyncProducer])
@pytest.mark.parametrize(
    ("timeout_s", "error"), [("10", TypeError), (-1, ValueError), (float("nan"), ValueError)]
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
