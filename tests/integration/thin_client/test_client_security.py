"""Tokens, TLS and names with several addresses at every form of the Python client."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.settings.types import host_port
from testkit.certificates import Certificates, make_certificates
from testkit.gateway import GROUP, TOPIC, Gateway, run_gateway
from testkit.scripted_proxy import ScriptedProxy
from thin_client import (
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    ConnectionLost,
    Consumer,
    Message,
    Observer,
    Producer,
    Puller,
    Refused,
    SendFailed,
    Timing,
    Tls,
)

pytestmark = pytest.mark.sockets

TOKEN = "let me in"
QUICK = Timing(request_timeout_s=20.0, drain_timeout_s=5.0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with run_gateway(tmp_path) as running:
        yield running


async def address_of(gateway: Gateway, certificates: Certificates) -> str:
    """Return the address of a proxy that requires TLS, a client certificate and a token."""
    _, addresses = await gateway.start_proxy(
        tokens=[{"name": "t", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}],
        **{
            "listen.tls": {
                "certificate": str(certificates.server),
                "key": str(certificates.server_key),
                "client_ca": str(certificates.ca),
            }
        },
    )
    return addresses.thrift


def tls_of(certificates: Certificates) -> Tls:
    return Tls(
        ca=str(certificates.ca),
        certificate=str(certificates.client),
        key=str(certificates.client_key),
    )


def consume_blocking(address: str, seen: list[str], **options: Any) -> None:
    each = Consumer(address, group=GROUP, timing=QUICK, **options)

    def handle(message: Message) -> None:
        seen.append(str(message.key))
        if len(seen) == 4:
            each.stop()

    each.run(handle, handle_signals=False)


async def consume_async(address: str, seen: list[str], **options: Any) -> None:
    each = AsyncConsumer(address, group=GROUP, timing=QUICK, **options)

    async def handle(message: Message) -> None:
        seen.append(str(message.key))
        if len(seen) == 4:
            each.stop()

    await each.run(handle, handle_signals=False)


async def test_every_form_shows_token_and_certificate(
    gateway: Gateway, certificates: Certificates
) -> None:
    """Pulls, settles, extends and sends all carry the token."""
    address, tls = await address_of(gateway, certificates), tls_of(certificates)
    async with AsyncProducer(address, token=TOKEN, tls=tls) as producer:
        await producer.send(TOPIC, b"1", key="a")
    with Producer(address, token=TOKEN, tls=tls) as blocking:
        await asyncio.to_thread(blocking.send, TOPIC, b"2", key="b")
        await asyncio.to_thread(blocking.send, TOPIC, b"3", key="c")
    with Puller(address, group=GROUP, token=TOKEN, tls=tls) as puller:
        got: list[Message] = []
        while not got:
            got = await asyncio.to_thread(puller.pull)
        assert await asyncio.to_thread(puller.extend, got[0], 1.0)
        assert await asyncio.to_thread(puller.settle, got[0])
    async with AsyncProducer(address, token=TOKEN, tls=tls) as producer:
        for key in "defghi":
            await producer.send(TOPIC, b"4", key=key)
    seen: list[str] = []
    await asyncio.wait_for(consume_async(address, seen, token=TOKEN, tls=tls), 60)
    also: list[str] = []
    blocking_run = asyncio.to_thread(consume_blocking, address, also, token=TOKEN, tls=tls)
    await asyncio.wait_for(blocking_run, 60)
    assert {*seen, *also} == {*"abcdefghi"} - {str(got[0].key)}


@pytest.mark.parametrize("token", [None, "wrong"])
async def test_without_the_token_every_form_ends_with_the_proxys_sentence(
    gateway: Gateway, certificates: Certificates, token: str | None
) -> None:
    address, tls = await address_of(gateway, certificates), tls_of(certificates)
    with pytest.raises(Refused, match="token") as refused:
        await asyncio.wait_for(consume_async(address, [], token=token, tls=tls), 30)
    assert refused.value.code == 401
    blocking = asyncio.to_thread(consume_blocking, address, [], token=token, tls=tls)
    with pytest.raises(Refused, match="token"):
        await asyncio.wait_for(blocking, 30)
    async with AsyncProducer(address, token=token, tls=tls) as producer:
        with pytest.raises(SendFailed, match="token") as failed:
            await producer.send(TOPIC, b"1")
    assert (failed.value.code, failed.value.outcome_unknown) == (71, False)


class FirstError(Observer):
    def __init__(self) -> None:
        self.error = asyncio.get_running_loop().create_future()

    def on_error(self, error: ClientError) -> None:
        if not self.error.done():
            self.error.set_result(error)


async def test_an_untrusted_proxy_receives_nothing(
    gateway: Gateway, certificates: Certificates
) -> None:
    """Another authority or name: no connection, and one sentence with the reason."""
    address = await address_of(gateway, certificates)
    for wrong in (
        Tls(ca=str(certificates.other_ca)),
        replace(tls_of(certificates), server_name="another.test"),
    ):
        with (
            Puller(address, group=GROUP, token=TOKEN, tls=wrong) as puller,
            pytest.raises(ConnectionLost, match="certificate verify failed"),
        ):
            await asyncio.to_thread(puller.pull)
        watch = FirstError()
        async with AsyncConsumer(address, group=GROUP, token=TOKEN, tls=wrong, observer=watch):
            error = await asyncio.wait_for(watch.error, 30)
        assert "certificate verify failed" in str(error)


async def test_the_name_in_the_certificate_may_be_said(
    gateway: Gateway, certificates: Certificates
) -> None:
    address = await address_of(gateway, certificates)
    tls = replace(tls_of(certificates), server_name="localhost")
    with Puller(address, group=GROUP, token=TOKEN, tls=tls) as puller:
        assert await asyncio.to_thread(puller.pull, wait_s=0.1) == []


def test_files_that_are_none_are_named_before_anything_connects(
    tmp_path: Path, certificates: Certificates
) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    for tls in (Tls(ca=str(nothing)), Tls(certificate=str(nothing))):
        with pytest.raises(ValueError, match=r"tls: .*nothing\.pem"):
            Consumer("proxy:9713", group="g", tls=tls)
    with pytest.raises(ValueError, match="has no certificate: set"):
        Producer("proxy:9713", tls=Tls(key=str(certificates.client_key)))


# ---- names --------------------------------------------------------------------------------------


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of proxies.test; tests may change them."""
    addresses: list[str] = []
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *options: Any, **named: Any) -> Any:
        if host != "proxies.test":
            return resolve(host, port, *options, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return addresses


@pytest.mark.parametrize("form", [consume_async, consume_blocking])
async def test_each_address_of_a_name_is_tried_and_the_name_is_asked_again(
    several: list[str], form: Any
) -> None:
    """No proxy listens at the first; then the name's addresses change, and the client follows."""
    async with ScriptedProxy() as proxy:
        await proxy.put(*"abcd")
        several[:] = ["127.0.0.2", "127.0.0.1"]
        address = f"proxies.test:{proxy.address.rpartition(':')[2]}"
        seen: list[str] = []
        run = (
            form(address, seen) if form is consume_async else asyncio.to_thread(form, address, seen)
        )
        await asyncio.wait_for(run, 40)
    assert seen == [*"abcd"]


async def test_after_a_failure_the_next_address_of_a_name_comes_first(several: list[str]) -> None:
    """An address that accepts connections but never answers does not block a client forever."""
    several[:] = ["127.0.0.2", "127.0.0.1"]
    seen: list[str] = []
    async with AsyncExitStack() as stack:
        silent: socket.socket | None = None
        while silent is None:
            proxy = await stack.enter_async_context(ScriptedProxy())
            _, port = host_port(proxy.address)
            with suppress(OSError):  # another process has that port at this address
                silent = stack.enter_context(socket.create_server(("127.0.0.2", port)))
        await proxy.put(*"abcd")
        timing = Timing(request_timeout_s=0.2)
        each = AsyncConsumer(f"proxies.test:{port}", group=GROUP, timing=timing)

        async def handle(message: Message) -> None:
            seen.append(str(message.key))
            each.stop()

        await asyncio.wait_for(each.run(handle, handle_signals=False), 60)
    assert seen
