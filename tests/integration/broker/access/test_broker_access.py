"""An embedded broker that requires signatures: our client, live changes, and unaffected
requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
import yaml

from broker_core.broker import Broker, BrokerSettings
from broker_core.client.half_messages import end, end_header, place_of_half, prepare
from broker_core.errors import BrokerError, StoreError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.retry_headers import SendBackHeader
from broker_core.remoting.signing import Credentials
from broker_core.remoting.transaction_headers import End
from broker_core.tasks import spawn
from proxy.app import Proxy
from proxy.cli.connect import ACCESS_KEY, SECRET_KEY
from proxy.core.delivery.secret import Secret
from proxy.errors import SettingsError
from proxy.net.secrets import credentials_of
from proxy.settings.proxy_settings import BrokerAccountSettings, load_settings
from testkit.broker_process import Cluster, run_broker
from testkit.eventually import eventually
from tests.support.verbs import orderlane
from thin_client.aio import AsyncConsumer
from thin_client.message import Message

ORDERS, BILLING = Topic("orders"), Group("billing")
ROOT = Credentials("root-account", "root-secret")
SHOP = Credentials("shop-account", "shop-secret")


def write(path: Path, **shop: Any) -> None:
    accounts = [
        {"accessKey": ROOT.access_key, "secretKey": ROOT.secret, "admin": True},
        {"accessKey": SHOP.access_key, "secretKey": SHOP.secret, **shop},
    ]
    path.write_text(yaml.safe_dump({"accounts": accounts}))


@pytest.fixture
async def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    write(path, topicPerms=["orders=PUB"])
    return path


@pytest.fixture
async def cluster(tmp_path: Path, accounts: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path / "broker", acl=accounts) as running:
        yield running


async def queue_of(cluster: Cluster) -> QueueName:
    """Return a queue created by the administrator."""
    root = await cluster.client("root", credentials=ROOT)
    await root.create_topic(ORDERS, queues=1)
    return (await root.queues(ORDERS, fresh=True))[0]


async def test_our_client_signs_and_may_what_its_account_may(cluster: Cluster) -> None:
    queue = await queue_of(cluster)
    shop = await cluster.client("shop", credentials=SHOP)
    await shop.send(queue, OutgoingMessage(ORDERS, b"one", key="k"))
    with pytest.raises(BrokerError, match="No default permission for topic orders") as refused:
        await shop.pull(queue, group=BILLING, offset=0, suspend_ms=0)
    assert refused.value.code == 16
    assert not refused.value.retriable
    stranger = await cluster.client("stranger")
    with pytest.raises(BrokerError, match="No accessKey is configured"):
        await stranger.send(queue, OutgoingMessage(ORDERS, b"two"))
    root = await cluster.client("root 2", credentials=ROOT)
    pulled = await root.pull(queue, group=BILLING, offset=0, suspend_ms=0)
    assert [each.body for each in pulled.messages] == [b"one"]
    another = root.another("root 3")
    pulled = await another.pull(queue, group=BILLING, offset=0, suspend_ms=0)
    assert [each.body for each in pulled.messages] == [b"one"]
    await another.close()


@pytest.mark.parametrize("right", ["PUB", "SUB"])
async def test_a_place_in_the_log_opens_no_topic(tmp_path: Path, right: str) -> None:
    """A copy of a message sent back goes to the group, which needs a right to its topic."""
    write(tmp_path / "acl.yml", groupPerms=["billing=SUB"], topicPerms=[f"orders={right}"])
    async with run_broker(tmp_path / "broker", acl=tmp_path / "acl.yml") as cluster:
        queue = await queue_of(cluster)
        root = await cluster.client("root 2", credentials=ROOT)
        await root.send(queue, OutgoingMessage(ORDERS, b"secret", key="k"))
        (message,) = (await root.pull(queue, group=BILLING, offset=0, suspend_ms=0)).messages
        shop = await cluster.client("shop", credentials=SHOP)
        header = SendBackHeader(offset=message.physical_offset, group=BILLING, delay_level=0)
        asked = shop.requests.ask("broker-a", RequestCode.CONSUMER_SEND_MSG_BACK, header.to_ext())
        if right == "SUB":
            await asked
        else:
            with pytest.raises(BrokerError, match="No default permission for topic orders"):
                await asked


@pytest.mark.parametrize("named", [ORDERS, None, "others"])
async def test_a_transaction_is_ended_by_accounts_that_may_send_to_its_topic(
    tmp_path: Path, named: str | None
) -> None:
    """Whatever topic the request names: 4.9 names none."""
    write(tmp_path / "acl.yml", topicPerms=["others=PUB"])
    async with run_broker(tmp_path / "broker", acl=tmp_path / "acl.yml") as cluster:
        queue = await queue_of(cluster)
        root = await cluster.client("root 2", credentials=ROOT)

        async def find_queue() -> QueueName:
            return queue

        half, cashiers = OutgoingMessage(ORDERS, b"half", key="k"), Group("cashiers")
        receipt = await prepare(root, half, find_queue, group=cashiers)
        place = place_of_half(receipt, cashiers)
        shop = await cluster.client("shop", credentials=SHOP)
        ext = replace(end_header(place, End.COMMIT), topic=named).to_ext()
        with pytest.raises(BrokerError, match="No default permission for topic orders"):
            await shop.requests.ask("broker-a", RequestCode.END_TRANSACTION, ext)
        await end(root, place, End.COMMIT)
        assert await root.max_offset(queue) == 1


async def test_verbs_sign_with_the_account_of_the_environment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue_of(cluster)
    asked = ("lag", BILLING, "--topic", ORDERS, "--nameserver", cluster.nameserver, "-o", "json")
    code, _, error = await orderlane(*asked)
    assert code == 2
    assert "No accessKey is configured" in error
    assert f"set {ACCESS_KEY} and {SECRET_KEY} to an account" in error
    monkeypatch.setenv(ACCESS_KEY, ROOT.access_key)
    code, _, error = await orderlane(*asked)
    assert (code, error.count(f"{SECRET_KEY} is not set")) == (2, 1)
    monkeypatch.setenv(SECRET_KEY, "not-its-secret")
    code, _, error = await orderlane(*asked)
    assert code == 2
    assert "not-its-secret" not in error
    monkeypatch.setenv(SECRET_KEY, ROOT.secret)
    code, told, error = await orderlane(*asked)
    assert (code, [row["end"] for row in orjson.loads(told)]) == (0, [0]), error


async def test_accounts_are_read_again_and_a_broken_file_changes_nothing(
    cluster: Cluster, accounts: Path
) -> None:
    queue = await queue_of(cluster)
    shop = await cluster.client("shop", credentials=SHOP)

    async def may_pull() -> bool:
        try:
            await shop.pull(queue, group=BILLING, offset=0, suspend_ms=0)
        except BrokerError:
            return False
        return True

    async def until(wanted: bool) -> None:
        async with asyncio.timeout(30):
            while await may_pull() is not wanted:  # noqa: ASYNC110 # no event to wait for
                await asyncio.sleep(0.05)

    assert not await may_pull()
    write(accounts, topicPerms=["orders=PUB|SUB"], groupPerms=["billing=SUB"])
    await until(True)
    with structlog.testing.capture_logs() as logs:
        write(accounts, colour="red")
        await eventually(lambda: any("accounts cannot be read" in each["event"] for each in logs))
    assert await may_pull()
    assert "shop-secret" not in str(logs)
    write(accounts)
    await until(False)


async def test_a_broker_with_wrong_accounts_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "acl.yml"
    for content, says in (
        (None, "No such file"),
        ("accounts: [{accessKey: me, secretKey: my-dear-secret}]", "accessKey of account 'me'"),
        ("accounts: [\n  my-dear-secret: [}", "the file is not valid YAML, in line 2"),
    ):
        if content is not None:
            path.write_text(content)
        broker = Broker(BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0", acl=path))
        with pytest.raises(StoreError, match="cannot be used") as refused:
            await broker.start()
        assert says in str(refused.value)
        assert "my-dear-secret" not in str(refused.value)


def test_the_proxys_account_comes_from_its_secrets() -> None:
    settings = BrokerAccountSettings(access_key="root-account", secret="root")
    assert credentials_of(settings, {"root": Secret(b"root-secret")}) == ROOT
    assert credentials_of(BrokerAccountSettings(), {}) is None
    with pytest.raises(SettingsError, match="'root', which is not among the proxy's secrets"):
        credentials_of(settings, {})
    with pytest.raises(SettingsError, match="'root', a secret that is not UTF-8"):
        credentials_of(settings, {"root": Secret(b"\xff")})
    with pytest.raises(ValueError, match="access_key and secret together"):
        BrokerAccountSettings(access_key="root-account")


async def test_a_proxy_with_an_account_serves_its_group(cluster: Cluster, tmp_path: Path) -> None:
    """Its heartbeats, locks, ownership records, pulls and commits are signed."""
    queue = await queue_of(cluster)
    root = await cluster.client("sender", credentials=ROOT)
    for body in (b"one", b"two"):
        await root.send(queue, OutgoingMessage(ORDERS, body, key="k"))
    (tmp_path / "secret").write_text(ROOT.secret)
    settings = load_settings(
        None,
        {
            "nameserver": cluster.nameserver,
            "listen.thrift": "127.0.0.1:0",
            "listen.http": "127.0.0.1:0",
            "commit_every_s": 0.1,
            "broker_account": {"access_key": ROOT.access_key, "secret": "root"},
            "secrets": [{"name": "root", "file": str(tmp_path / "secret")}],
            "groups": [{"name": BILLING, "topics": [{"name": ORDERS, "order_key": "KEY"}]}],
        },
        environment={},
    )
    proxy = Proxy(settings)
    addresses = await proxy.start()
    try:
        seen: list[bytes] = []

        async def handle(message: Message) -> None:
            seen.append(message.body)

        consumer = AsyncConsumer(addresses.thrift, group=BILLING, client_id="one")
        consuming = spawn(consumer.run(handle, handle_signals=False), name="consume")
        try:
            await eventually(lambda: seen == [b"one", b"two"], within_s=20)
        finally:
            consumer.stop()
            await consuming
    finally:
        await proxy.close()
    assert await root.committed_offset(BILLING, queue) == 2
