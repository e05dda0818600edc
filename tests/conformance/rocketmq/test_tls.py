"""TLS between RocketMQ's client and our broker, and between our client and their broker."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import ConnectionLost
from broker_core.names import Group, Topic
from broker_core.remoting.message import OutgoingMessage
from broker_core.tls import ClientContext
from broker_core.tls_settings import ClientTls, ServerTls
from testkit.certificates import make_certificates
from testkit.rocketmq import VERSIONS, official_cluster
from tests.conformance.rocketmq.java_client import WITH_TLS, JavaClients, stage

pytestmark = pytest.mark.parametrize("version", VERSIONS)
TOPIC = Topic("orders")


@pytest.mark.feature("TLS: its client on our ports, our client on its own")
async def test_its_client_sends_and_consumes_where_tls_is_enforced(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    files = make_certificates(tmp_path)
    tls = ServerTls(certificate=str(files.server), key=str(files.server_key))
    ours = ClientTls(ca=str(files.ca))
    java = java_clients.shared(version, WITH_TLS)
    async with stage(java, tmp_path / "broker", tls=tls, client_tls=ours) as scene:
        await scene.start("producer", "p")
        await scene.start("push", "c", tags="*")
        sent = [{"body": f"message {n}", "key": "k"} for n in range(20)]
        assert {each["status"] for each in await scene.send("p", sent, how="sync")} == {"SEND_OK"}
        await scene.handled(20, within_s=60)
        assert sorted(scene.java.bodies("c")) == sorted(each["body"] for each in sent)


@pytest.mark.feature("TLS: its client on our ports, our client on its own")
async def test_our_client_uses_the_tls_that_its_servers_speak_by_default(
    version: str, tmp_path: Path
) -> None:
    """Their mode is permissive, their certificate a self-signed one for tests."""
    with official_cluster(tmp_path / "official", version) as cluster:
        for address in (cluster.nameserver, cluster.broker_address):
            await asyncio.to_thread(greet, address)
        async with client_of(cluster.nameserver, ClientTls()) as careful:
            with pytest.raises(ConnectionLost, match=r"by TLS: self.signed certificate"):
                await careful.topics()
        async with client_of(cluster.nameserver, ClientTls(verify="none")) as client:
            await client.create_topic(TOPIC, queues=1)
            (queue,) = await client.queues(TOPIC, fresh=True)
            await client.send(queue, OutgoingMessage(TOPIC, b"hello"))
            pulled = await client.pull(queue, group=Group("r"), offset=0, suspend_ms=15_000)
            assert [message.body for message in pulled.messages] == [b"hello"]


def greet(address: str) -> None:
    """Warm up: on a busy machine their first handshake may take longer than our client waits."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as sock,
        context.wrap_socket(sock),
    ):
        pass


@asynccontextmanager
async def client_of(nameserver: str, tls: ClientTls) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(
        nameservers=[nameserver],
        client_id="ours",
        tls=ClientContext(tls, "client_tls"),
        request_timeout_s=20,
    )
    await client.start()
    try:
        yield client
    finally:
        await client.close()
