"""Attacks on whole gateways that fit no other test file; SECURITY.md lists them all."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, Topic
from proxy.settings.types import host_port
from testkit.gateway import GROUP, TOPIC, run_gateway
from testkit.thrift_client import COMPACT, ThriftClient, connect, our_pull
from thrift_idl import consumer, producer

LEADING_OUT = ("../x", "..", "/etc/passwd", "a/../../b", "a\\b", "a\0b", "%OWN%../x", ".")


def list_of(folder: Path, pattern: str) -> list[Path]:
    """Return files and folders of that name at any depth."""
    return sorted(folder.rglob(pattern))


async def answer_to(address: str, sent: bytes) -> bytes:
    """Return the whole answer to *sent*, until the connection ends."""
    reader, writer = await asyncio.open_connection(*host_port(address))
    writer.write(sent)
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 0\r\nContent-Length: 60\r\n",
        b"Content-Length: 60\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Content-Length: +60\r\n",
    ],
)
async def test_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_served(
    tmp_path: Path, lengths: bytes
) -> None:
    hidden = b"GET /api/groups HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head = b"POST /api/owners/drain HTTP/1.1\r\nHost: localhost\r\n" + lengths
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy()
        answer = await answer_to(at.http, head + b"\r\n0\r\n\r\n" + hidden)
    assert answer.split(b" ")[1] == b"400"
    assert answer.count(b"HTTP/1.") == 1
    assert GROUP.encode() not in answer


async def test_json_nested_without_end_is_refused(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy()
        for body in (b"[" * 500_000, b'{"a":' * 100_000, b'{"reason":' + b"[" * 5_000):
            head = (
                b"POST /api/owners/drain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            assert (await answer_to(at.http, head + body)).split(b" ")[1] == b"400"


async def test_names_that_lead_out_of_a_folder_are_refused(tmp_path: Path) -> None:
    """In requests of a thin client to the proxy, and of RocketMQ's clients to the broker."""
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(auto_create_groups=True)
        client = BrokerClient(
            nameservers=[gateway.cluster.nameserver], client_id="x@1#1", request_timeout_s=20
        )
        async with connect(host_port(at.thrift)[1]) as thin:
            for name in LEADING_OUT:
                for asked in (our_pull(name, topic=TOPIC), our_pull("g", topic=name)):
                    with pytest.raises(consumer.PullException):
                        await thin.call("pull", asked)
                message = producer.Message(topic=name, body=b"x")
                assert (await thin.call("sendSync", message, 1000)).code != 0
                with pytest.raises(RemotingError):
                    await client.create_topic(Topic(name), queues=1)
                with pytest.raises(RemotingError):
                    await client.commit_offset(Group(name), gateway.queue(0), 1)
        await client.close()
    assert not list_of(tmp_path, "*..*")
    assert not list_of(tmp_path.parent, "x")


async def test_impossible_names_are_refused_and_shown_nowhere(tmp_path: Path) -> None:
    """They are not matched with patterns, which may be slow, and not stored either."""
    long = "%x" * 1_000_000
    batch = consumer.AckBatch(consumer.Context(groupId=long, topic=TOPIC))
    settings = {
        "tokens": [{"name": "new", "sha256": hashlib.sha256(b"t").hexdigest()}],
        "access": [{"principals": ["*"], "may": ["pull", "produce"], "topics": ["*x*x*x*y"]}],
    }
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**settings)
        async with connect(host_port(at.thrift)[1]) as client:
            for method, *arguments in (
                ("pull", our_pull(long, topic=TOPIC, token="t")),
                ("pull", our_pull(GROUP, topics=[f"t{n}" for n in range(5_000)], token="t")),
                ("settle", consumer.AckRequest(GROUP, [batch], token="t")),
            ):
                with pytest.raises(consumer.PullException) as refused:
                    await client.call(method, *arguments)
                text = refused.value.message
                assert (refused.value.code, len(text) < 200) == (403, True)
                assert "a name of 2000000 characters" in text or "5000 topics" in text
            sent = producer.Message(topic=long, body=b"x", token="t")
            answer = await client.call("sendSync", sent, 1000)
            assert (answer.code, len(answer.msg) < 200) == (71, True)


async def test_tokens_and_secrets_are_in_no_log_history_or_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    token, wrong, secret = "the-right-token", "the-wrong-token", "the-secret-itself"
    monkeypatch.setenv("A_SECRET", secret)
    settings: dict[str, Any] = {
        "tokens": [{"name": "t", "sha256": hashlib.sha256(token.encode()).hexdigest()}],
        "secrets": [{"name": "s", "environment": "A_SECRET"}],
        "listen.http": "0.0.0.0:0",
    }
    shown = b""
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**settings)
        reader, writer = await asyncio.open_connection(*host_port(at.thrift))
        thin = ThriftClient(reader, writer, COMPACT)
        for each in (token, wrong):
            try:
                await thin.call("pull", our_pull(GROUP, token=each))
            except consumer.PullException as error:
                shown += error.message.encode()
            message = producer.Message(topic=TOPIC, body=b"x", token=each)
            shown += (await thin.call("sendSync", message, 1000)).msg.encode()
            for path in ("/api/groups", f"/api/groups/{GROUP}", "/metrics", "/api/audit"):
                head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {each}\r\n"
                address = f"127.0.0.1:{at.http.rpartition(':')[2]}"
                shown += await answer_to(address, f"{head}Connection: close\r\n\r\n".encode())
        thin.abort()
    logged = "".join(capfd.readouterr())
    assert GROUP.encode() in shown
    written = [path.read_bytes() for path in list_of(tmp_path, "*.jsonl")]
    assert written
    for text in (shown, logged.encode(), *written):
        for hidden in (token, wrong, secret, hashlib.sha256(token.encode()).hexdigest()):
            assert hidden.encode() not in text
