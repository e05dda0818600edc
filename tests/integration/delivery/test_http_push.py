"""A push action's deliverer against a real HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from broker_core.clock import now_ns
from broker_core.names import Group, Topic
from broker_core.tasks import cancel_and_wait, spawn
from proxy.delivery.deliverer import ACKED, Delivery, TargetDown, Verdict
from proxy.delivery.sinks.push import HttpPush
from proxy.net.tls import client_context
from proxy.settings.sinks.push import PushSettings, answer_rules_of, push_rules_of, receivers_of
from testkit.eventually import eventually
from tests.integration.delivery.receiver import (
    Receiver,
    Reply,
    breaks_off,
    drips,
    hangs_up,
    running_receiver,
    says,
    says_garbage,
    says_json,
    says_nothing,
    stops_in_the_body,
)
from tests.support.receiver_access import access

DELIVERY = Delivery(
    group=Group("billing"),
    topic=Topic("orders"),
    qid="broker-a_0#1",
    queue="broker-a_0",
    offset=0,
    key="k1",
    tag=None,
    body=b'{"id": 1}',
    properties={},
    message_id="AC11",
    attempt=1,
    order_key=b"k1",
    deadline_ns=0,
)
MakePush = Callable[..., HttpPush]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with running_receiver() as running:
        yield running


@pytest.fixture
async def push(receiver: Receiver) -> AsyncIterator[MakePush]:
    """Return a function that creates pushes to the receiver or to *urls*, with further settings."""
    async with contextlib.AsyncExitStack() as stack:

        def make(*urls: str, secrets: dict[str, bytes] | None = None, **further: Any) -> HttpPush:
            named = {"urls": urls or [receiver.url], "timeout_s": 20.0, **further}
            settings = PushSettings.model_validate(named)
            allowed = access(**(secrets or {}))
            made = HttpPush(
                push_rules_of(settings, allowed),
                answer_rules_of(settings),
                addresses=receivers_of(settings, allowed),
                timeout_s=settings.timeout_s,
                concurrency=settings.concurrency,
                max_rate=settings.max_rate,
                tls=None if settings.ca_file is None else client_context(settings.ca_file),
            )
            stack.push_async_callback(made.close)
            return made

        yield make


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_message_arrives_with_all_that_its_receiver_has_to_know(
    receiver: Receiver, push: MakePush
) -> None:
    further = {"headers": [{"name": "Authorization", "secret": "hush"}]}
    assert await push(secrets={"hush": b"Bearer x"}, **further).deliver(DELIVERY) == ACKED

    (received,) = receiver.received
    assert (received.method, received.path) == ("POST", "/orders")
    assert received.body == (
        b'{"topic":"orders","group":"billing","queue":"broker-a_0","offset":0,"key":"k1",'
        b'"tag":null,"message_id":"AC11","attempt":1,"body":{"id": 1}}'
    )
    assert received.headers["Content-Type"] == "application/json"
    assert received.headers["Authorization"] == "Bearer x"
    assert received.message_id == "AC11"
    assert received.headers["User-Agent"].startswith("orderlane/")


async def test_get_and_post_with_parameters(receiver: Receiver, push: MakePush) -> None:
    names = {"format": "fields", "names": "ddmq", "context": ["offset"]}
    await push(method="GET", **names).deliver(DELIVERY)
    await push(method="POST", **names).deliver(DELIVERY)

    got, posted = receiver.received
    expected = "id=1&carrera_offset=0&carrera_req_cnt=0"
    assert (got.method, got.query, got.body) == ("GET", expected, b"")
    assert (posted.method, posted.query, posted.body) == ("POST", "", expected.encode())


async def test_a_body_of_megabytes_arrives_whole(receiver: Receiver, push: MakePush) -> None:
    body = bytes(range(256)) * (3 << 12)

    assert await push(format="raw").deliver(replace(DELIVERY, body=body)) == ACKED
    assert receiver.received[0].body == body


async def test_connections_are_used_again_and_never_more_than_are_allowed(
    receiver: Receiver, push: MakePush
) -> None:
    pushing = push(concurrency=3)
    for _ in range(2):
        deliveries = [replace(DELIVERY, offset=offset) for offset in range(12)]
        assert await asyncio.gather(*map(pushing.deliver, deliveries)) == [ACKED] * 12

    assert receiver.most_handled <= 3
    assert len(receiver.peers) <= 3


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (says(500), "HTTP status 500"),
        (says(404), "HTTP status 404"),
        (says(408), "HTTP status 408"),
        (says(302, Location="/other"), "a redirect to /other, and redirects are not followed"),
        (hangs_up, "the connection ended without an answer"),
        (breaks_off, "the answer was incomplete"),
        (says_garbage, "invalid HTTP in the answer"),
        (says_json('{"errno": 7, "errmsg": "no room"}'), "errno 7 (no room)"),
        (says_json("<html>"), "not valid JSON"),
        (says_json('{"errno": "0"}'), "not a whole number"),
        (says(200, b"x" * 2000), "exceeds 1000 bytes"),
        (says(200, b"\x1f\x8b\x08" + b"x" * 20, Content_Encoding="gzip"), None),
    ],
)
async def test_the_answer_decides_the_verdict(
    receiver: Receiver, push: MakePush, reply: Reply, reason: str | None
) -> None:
    receiver.answer(reply)
    pushing = push(answer="errno", max_answer_bytes=1000)

    verdict = await pushing.deliver(DELIVERY)

    if reason is None:
        assert verdict == ACKED
    else:
        assert not verdict.acked
        assert verdict.reason.startswith(f"http://127.0.0.1:{receiver.port}: ")
        assert reason in verdict.reason
        assert (verdict.reject, verdict.retry_after_ms) == (False, None)
    assert len(receiver.received) == 1
    assert await pushing.deliver(DELIVERY) == ACKED, "a failure leaves nothing behind"


@pytest.mark.parametrize("reply", [says_nothing, stops_in_the_body, drips])
async def test_one_time_limit_covers_the_whole_answer(
    receiver: Receiver, push: MakePush, reply: Reply
) -> None:
    """The connection closes, so a late receiver sees that its answer is no longer wanted."""
    receiver.answer(reply)
    pushing = push(timeout_s=3.0)  # enough for a busy machine to send the request
    began_ns = now_ns()

    verdict = await pushing.deliver(DELIVERY)

    assert not verdict.acked
    assert "no complete answer within 3 s" in verdict.reason
    assert now_ns() - began_ns >= 2.9e9
    await eventually(lambda: receiver.dropped == 1)
    assert await pushing.deliver(DELIVERY) == ACKED


async def test_a_late_answer_is_not_taken_for_that_of_the_next_request(
    receiver: Receiver, push: MakePush
) -> None:
    late = asyncio.Event()

    async def reply(_received: object) -> web.StreamResponse:
        await late.wait()
        return web.Response()

    receiver.answer(reply, says(500))
    pushing = push(timeout_s=2.5, concurrency=1)  # enough for the second answer
    assert not (await pushing.deliver(DELIVERY)).acked
    late.set()

    assert "HTTP status 500" in (await pushing.deliver(DELIVERY)).reason


async def test_a_cancelled_delivery_ends_its_request(receiver: Receiver, push: MakePush) -> None:
    receiver.answer(says_nothing)
    pushing = push()
    delivering = spawn(pushing.deliver(DELIVERY), name="deliver")
    await eventually(lambda: receiver.handling == 1)
    await cancel_and_wait(delivering)

    assert delivering.cancelled()
    await eventually(lambda: receiver.dropped == 1)


async def test_an_unreachable_target_is_down_and_no_failure_of_the_message(
    push: MakePush,
) -> None:
    port = unused_port()
    url = f"http://127.0.0.1:{port}/"
    pushing = push(url)
    with pytest.raises(
        TargetDown, match=f"http://127.0.0.1:{port} cannot be reached: Connection refused"
    ):
        await pushing.deliver(DELIVERY)
    with pytest.raises(TargetDown, match=r"no\.invalid:80 cannot be reached"):
        await push("http://no.invalid/").deliver(DELIVERY)

    async with running_receiver(port) as receiver:
        assert await pushing.deliver(DELIVERY) == ACKED
        assert len(receiver.received) == 1


async def test_of_several_urls_the_next_one_is_tried_where_one_cannot_be_connected_to(
    receiver: Receiver, push: MakePush
) -> None:
    dead = f"http://127.0.0.1:{unused_port()}/"
    pushing = push(dead, receiver.url)
    deliveries = [replace(DELIVERY, offset=offset) for offset in range(6)]
    assert await asyncio.gather(*map(pushing.deliver, deliveries)) == [ACKED] * 6
    other = f"http://127.0.0.1:{unused_port()}/"
    with pytest.raises(TargetDown, match=r"refused; http.* cannot be reached: Connection refused$"):
        await push(dead, other, dead + "same").deliver(DELIVERY)


async def test_a_time_limit_names_the_url_that_did_not_answer(
    receiver: Receiver, push: MakePush
) -> None:
    receiver.answer(says_nothing)
    dead = f"http://127.0.0.1:{unused_port()}/"
    verdict = await push(dead, receiver.url, timeout_s=2.5).deliver(DELIVERY)
    assert verdict.reason.startswith(f"http://127.0.0.1:{receiver.port}: no complete answer")


async def test_a_retry_goes_to_the_next_url(receiver: Receiver, push: MakePush) -> None:
    async with running_receiver() as other:
        for each in (other, receiver):
            each.answer(*[says(500)] * 4)
        pushing = push(receiver.url, other.url)
        for attempt in (1, 2, 3, 4):
            assert not (await pushing.deliver(replace(DELIVERY, attempt=attempt))).acked

        assert [each.headers["Orderlane-Attempt"] for each in receiver.received] == ["1", "3"]
        assert [each.headers["Orderlane-Attempt"] for each in other.received] == ["2", "4"]


async def test_https_needs_a_certificate_that_is_trusted(push: MakePush, tmp_path: Path) -> None:
    """By the system or the settings; and it has to name the host."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trusted = {"ca_file": str(tmp_path / "ca.pem")}
    async with running_receiver(tls=context) as receiver:
        url = f"https://localhost:{receiver.port}/"
        with pytest.raises(TargetDown, match="certificate verify failed"):
            await push(url).deliver(DELIVERY)
        with pytest.raises(TargetDown, match="certificate verify failed: IP address mismatch"):
            await push(f"https://127.0.0.1:{receiver.port}/", **trusted).deliver(DELIVERY)
        assert receiver.received == []
        assert await push(url, **trusted).deliver(DELIVERY) == ACKED


async def test_a_receiver_may_ask_for_a_wait_for_fewer_requests_and_for_none(
    receiver: Receiver, push: MakePush
) -> None:
    receiver.answer(
        says(500, Retry_After="7"),
        says(500, Retry_After="700"),
        says_json('{"errno": 1000002}'),
        says_json('{"errno": 1000000}'),
        says(503, Retry_After="30"),
    )
    pushing = push(answer="errno")
    waits = [(await pushing.deliver(DELIVERY)).retry_after_ms for _ in range(3)]
    assert waits == [7000, 60_000, 1000]
    assert not pushing.pace.is_slow(now_ns())

    assert await pushing.deliver(DELIVERY) == ACKED
    assert pushing.pace.is_slow(now_ns())
    assert pushing.pace.take(100, now_ns()) <= 1

    assert (await pushing.deliver(DELIVERY)).retry_after_ms == 30_000
    assert 20e9 < pushing.pace.wait_ns(now_ns()) <= 30e9


async def test_permanent_failures_are_rejected(receiver: Receiver, push: MakePush) -> None:
    receiver.answer(says(422))
    assert (await push(reject_on=[422]).deliver(DELIVERY)).reject

    text = await push(format="fields").deliver(replace(DELIVERY, body=b"text"))
    assert text == Verdict(
        acked=False, reason="the body is not a JSON object, which format: fields needs", reject=True
    )
    assert len(receiver.received) == 1


async def test_a_message_is_pushed_where_it_says_only_if_the_settings_allow_it(
    receiver: Receiver, push: MakePush
) -> None:
    async with running_receiver() as own:

        def naming(url: str) -> Delivery:
            return replace(DELIVERY, properties={"carrera_http_callback_url": url})

        assert await push().deliver(naming(own.url)) == ACKED
        assert (len(receiver.received), len(own.received)) == (1, 0)

        allowing = push(callback_hosts=[f"127.0.0.1:{own.port}"])
        assert await allowing.deliver(naming(own.url)) == ACKED
        assert (len(receiver.received), len(own.received)) == (1, 1)

        for url in (receiver.url, f"http://localhost:{own.port}/", "file:///etc/passwd"):
            verdict = await allowing.deliver(naming(url))
            assert (verdict.acked, verdict.reject) == (False, True)
        assert (len(receiver.received), len(own.received)) == (1, 1)

        own.answer(says(302, Location=receiver.url), says(503, Retry_After="30"))
        assert "a redirect to" in (await allowing.deliver(naming(own.url))).reason
        assert (await allowing.deliver(naming(own.url))).retry_after_ms == 30_000
        assert allowing.pace.wait_ns(now_ns()) == 0, "one message's receiver delays no other"
        assert len(receiver.received) == 1


async def test_a_receiver_that_a_message_names_and_that_is_down_is_that_message_s_failure(
    push: MakePush,
) -> None:
    port = unused_port()
    message = replace(
        DELIVERY, properties={"carrera_http_callback_url": f"http://127.0.0.1:{port}/"}
    )

    verdict = await push(callback_hosts=[f"127.0.0.1:{port}"]).deliver(message)

    assert not verdict.acked
    assert "cannot be reached" in verdict.reason


async def test_nothing_of_the_environment_or_of_earlier_answers_goes_with_a_request(
    receiver: Receiver, push: MakePush, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_port()}")
    receiver.answer(says(200, Set_Cookie="a=b; Path=/"))
    pushing = push()
    for _ in range(2):
        assert await pushing.deliver(DELIVERY) == ACKED

    assert [each.headers.get("Cookie") for each in receiver.received] == [None, None]
