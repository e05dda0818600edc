"""Nameserver, brokers, proxy and verbs that all connect by TLS; plain connections are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_core.broker import Broker, BrokerSettings
from broker_core.broker.groups.strict_locks_processor import StrictLockProcessor
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import ConnectionLost, TlsError
from broker_core.names import Group, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.tls_settings import ClientTls, ServerTls
from proxy.app import Proxy
from proxy.errors import OrderlaneError
from proxy.settings.proxy_settings import load_settings
from testkit.broker_process import run_broker
from testkit.certificates import Certificates, make_certificates
from testkit.eventually import until
from testkit.processes import Children
from tests.support.command_line import CommandLine
from tests.support.replica_group import TOPIC, replica_group


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    folder = tmp_path / "certificates"
    folder.mkdir()
    return make_certificates(folder)


def shown(certificates: Certificates) -> dict[str, str]:
    """Return the files of a port that asks clients for certificates."""
    return {
        "certificate": str(certificates.server),
        "key": str(certificates.server_key),
        "client_ca": str(certificates.ca),
    }


def known(certificates: Certificates) -> dict[str, str]:
    """Return the files of a client."""
    return {
        "ca": str(certificates.ca),
        "certificate": str(certificates.client),
        "key": str(certificates.client_key),
    }


def both(certificates: Certificates) -> dict[str, Any]:
    return {
        "tls": ServerTls.model_validate(shown(certificates)),
        "client_tls": ClientTls.model_validate(known(certificates)),
    }


@pytest.mark.sockets
async def test_replicas_join_vote_and_copy_by_tls_alone(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(StrictLockProcessor.__init__.__kwdefaults__, "vote_s", 5.0)
    strict = {"total_replicas": 2, "lock_in_strict_mode": True}
    settings = {"replication": "sync", **strict, **both(certificates)}
    async with replica_group(tmp_path, **settings) as group:
        await group.start(0)
        await group.start(1, **strict)
        (queue,) = await group.queues()
        client = await group.client()
        # Stored once the slave has it; granted once the slave has voted.
        await client.send(queue, OutgoingMessage(TOPIC, b"hello"))

        async def granted() -> bool:
            return (await client.lock(Group("readers"), [queue])).granted == {queue}

        await until(granted)
        await group.until_served(1, [b"hello"])
        strange = ConnectionPool()
        for number in (0, 1):
            with pytest.raises(ConnectionLost):
                await strange.request(
                    group.brokers[number].address,
                    RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO),
                    timeout_s=5,
                )
        await strange.close()


@pytest.mark.sockets
async def test_a_reopened_broker_serves_by_tls_as_before(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with run_broker(tmp_path, **both(certificates)) as cluster:
        (queue,) = await cluster.create_topic("orders", queues=1)
        client = await cluster.client()
        await client.send(queue, OutgoingMessage(Topic("orders"), b"hello"))
        await cluster.restart_broker()
        pulled = await client.pull(queue, group=Group("r"), offset=0, suspend_ms=0)
        assert [message.body for message in pulled.messages] == [b"hello"]


async def test_files_that_cannot_be_used_end_the_start(
    tmp_path: Path, certificates: Certificates
) -> None:
    for name, wrong in (
        ("tls", {"certificate": "nothing.pem", "key": str(certificates.server_key)}),
        ("client_tls", {"ca": "nothing.pem"}),
    ):
        settings = {"data": tmp_path / "data", "listen": "127.0.0.1:0", name: wrong}
        broker = Broker(BrokerSettings.model_validate(settings))
        with pytest.raises(TlsError, match=rf"^{name}\.c\w+: cannot read nothing\.pem"):
            await broker.start()
    with pytest.raises(OrderlaneError, match=r"^broker_tls\.ca: cannot read nothing\.pem"):
        Proxy(load_settings(None, {"broker_tls.ca": "nothing.pem"}, environment={}))
    with pytest.raises(OrderlaneError, match=r"broker_tls.*certificate and key together"):
        load_settings(None, {"broker_tls.certificate": "own.pem"}, environment={})


@pytest.mark.slow
def test_all_of_up_and_the_verbs_connect_by_tls(tmp_path: Path, certificates: Certificates) -> None:
    """Messages go through; ``doctor`` and ``topics`` use the environment for the nameserver."""
    own = known(certificates)
    (tmp_path / "broker.yaml").write_text(
        yaml.safe_dump({"tls": shown(certificates), "client_tls": own})
    )
    (tmp_path / "proxy.yaml").write_text(yaml.safe_dump({"broker_tls": own}))
    ports = [part for name in PORTS for part in (f"--{name}-port", 0)]
    files = ("--settings", "proxy.yaml", "--broker-settings", "broker.yaml")
    with Children(tmp_path) as children:
        at = children.start("up", "--data", "data", *files, *ports).ready()
        thrift = ("--proxy", at["thrift"])
        sent = children.run("produce", "orders", "--count", 5, "--keys", 2, *thrift)
        assert sent.json == {"sent": 5}, sent.err
        consumed = children.run("consume", "billing", "orders", "--quiet", "--count", 5, *thrift)
        assert consumed.json == {"handled": 5}, consumed.err
        nameserver = ("--nameserver", at["nameserver"])
        refused = children.run("topics", *nameserver)
        assert (refused.code, len(refused.err.splitlines())) == (2, 1), refused
        variables = {f"ORDERLANE_BROKER_TLS__{name.upper()}": own[name] for name in own}
        listed = children.run("topics", *nameserver, "-o", "json", **variables)
        assert "orders" in {row["topic"] for row in listed.json}, listed.err
        seen = children.run("doctor", *nameserver, "--http", at["http"], **variables)
        assert seen.code == 0, seen.out + seen.err


PORTS = ("thrift", "http", "nameserver", "broker")


def test_a_nameserver_takes_its_tls_by_options(tmp_path: Path, certificates: Certificates) -> None:
    own = shown(certificates)
    options = ("--tls-certificate", own["certificate"], "--tls-key", own["key"])
    with Children(tmp_path) as children:
        at = children.start(
            "nameserver", "--listen", "127.0.0.1:0", *options, "--tls-mode", "permissive"
        ).ready()["nameserver"]
        for variables in ({}, {"ORDERLANE_BROKER_TLS__CA": str(certificates.ca)}):
            listed = children.run("topics", "--nameserver", at, "-o", "json", **variables)
            assert (listed.code, listed.json) == (0, []), listed.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--tls-mode", "enforcing"), "--tls-certificate, --tls-key: TLS needs"),
        (
            ("--tls-certificate", "a", "--tls-key", "b", "--tls-mode", "on"),
            "--tls-mode: TLS needs",
        ),
        (("--tls-certificate", "a", "--tls-key", "b"), "nameserver: tls.certificate: cannot read"),
    ],
)
def test_inconsistent_tls_options_are_refused(
    orderlane: CommandLine, options: tuple[str, ...], sentence: str
) -> None:
    problem = orderlane.problem("nameserver", "--listen", "127.0.0.1:0", *options)
    assert problem.startswith(sentence)


@pytest.mark.parametrize("name", ["client_tls", "broker_tls"])
def test_up_says_what_its_parts_need_to_connect(
    orderlane: CommandLine, tmp_path: Path, certificates: Certificates, name: str
) -> None:
    """Otherwise they would wait for each other forever."""
    trusting = {"ca": str(certificates.ca)}
    of_broker = {"tls": {**shown(certificates), "client_ca": None}}
    if name != "client_tls":
        of_broker["client_tls"] = trusting
    (tmp_path / "broker.yaml").write_text(yaml.safe_dump(of_broker))
    problem = orderlane.problem(
        "up", "--data", tmp_path / "data", "--broker-settings", tmp_path / "broker.yaml"
    )
    assert problem.startswith(f"{name} is missing: ")
