"""A nameserver with accounts: strangers read routes, and change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.broker import Broker, BrokerSettings
from broker_core.client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.names import Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.signing import Credentials
from tests.support.bad_requests import AT_NAMESERVER

READS = {
    *(RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO),
    *(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_KV_CONFIG),
    *(RequestCode.GET_KVLIST_BY_NAMESPACE, RequestCode.GET_TOPICS_BY_CLUSTER),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
}
WRITES = sorted(set(AT_NAMESERVER) - READS)
ADMIN = Credentials("broker-account", "broker-secret")
ACCOUNTS = """
accounts:
- {accessKey: broker-account, secretKey: broker-secret, admin: true}
- {accessKey: other-account, secretKey: other-secret, defaultTopicPerm: PUB|SUB}
"""


@pytest.fixture
def acl(tmp_path: Path) -> Path:
    path = tmp_path / "accounts.yml"
    path.write_text(ACCOUNTS)
    return path


@pytest.fixture
async def nameserver(acl: Path) -> AsyncIterator[NameServer]:
    server = NameServer(acl=acl)
    await server.start()
    yield server
    await server.close()


async def ask(
    server: NameServer, code: int, credentials: Credentials | None = None, *, tamper: bool = False
) -> RemotingCommand:
    good = AT_NAMESERVER[RequestCode(code)]
    pool = ConnectionPool(credentials=None if tamper else credentials)
    command = RemotingCommand(code, ext=good.ext(), body=good.content())
    if tamper and credentials is not None:
        command.sign({**credentials.signed(command.ext, command.body), "extra": "1"})
    try:
        return await pool.request(server.address, command, timeout_s=20)
    finally:
        await pool.close()


FORGED: Mapping[str, Credentials | None] = {
    "no account": None,
    "an unknown account": Credentials("unknown-account", "broker-secret"),
    "a wrong secret": Credentials("broker-account", "guessed-secret"),
    "an account without administration": Credentials("other-account", "other-secret"),
}


@pytest.mark.parametrize("code", WRITES)
async def test_strangers_change_nothing(nameserver: NameServer, code: int) -> None:
    for name, credentials in FORGED.items():
        answer = await ask(nameserver, code, credentials)
        assert (answer.code, "AclException" in (answer.remark or "")) == (16, True), name
    assert (await ask(nameserver, code, ADMIN, tamper=True)).code == 16, "changed after signing"
    assert (await ask(nameserver, code, ADMIN)).code != 16


@pytest.mark.parametrize("code", sorted(READS))
async def test_reading_needs_no_account(nameserver: NameServer, code: int) -> None:
    assert (await ask(nameserver, code)).code != 16


async def test_a_refused_write_is_logged_with_its_sender(nameserver: NameServer) -> None:
    with capture_logs() as logs:
        await ask(nameserver, RequestCode.PUT_KV_CONFIG)
    (line,) = [each for each in logs if each["event"] == "request refused"]
    assert line["request"] == "PUT_KV_CONFIG"
    assert line["peer"].startswith("127.0.0.1:")
    assert line["log_level"] == "warning"


async def test_a_broker_with_the_same_accounts_registers_and_leaves(
    nameserver: NameServer, acl: Path, tmp_path: Path
) -> None:
    broker = Broker(
        BrokerSettings(
            data=tmp_path / "data",
            listen="127.0.0.1:0",
            nameserver=(nameserver.address,),
            acl=acl,
        )
    )
    await broker.start()
    client = BrokerClient(
        nameservers=[nameserver.address], client_id="t@1", credentials=ADMIN, request_timeout_s=20
    )
    try:
        await client.create_topic(Topic("orders"), queues=2)
        assert len(await client.queues(Topic("orders"), fresh=True)) == 2
    finally:
        await client.close()
        await broker.close()
    assert (await ask(nameserver, RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
