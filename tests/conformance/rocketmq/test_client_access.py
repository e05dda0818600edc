"""RocketMQ's own client and command line sign requests to our broker with authentication."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from broker_core.names import Topic
from broker_core.remoting.signing import Credentials
from testkit.broker_process import run_broker
from testkit.eventually import eventually
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.admin_tool import admin_tool
from tests.conformance.rocketmq.java_client import TOLD, JavaClients, Stage

ROOT = Credentials("root-account", "root-secret")
SHOP = Credentials("shop-account", "shop-secret")
TOPIC = Topic("orders")


def written(folder: Path) -> Path:
    path = folder / "plain_acl.yml"
    root = {"accessKey": ROOT.access_key, "secretKey": ROOT.secret, "admin": True}
    shop = {
        "accessKey": SHOP.access_key,
        "secretKey": SHOP.secret,
        "topicPerms": [f"{TOPIC}=PUB|SUB"],
        "groupPerms": ["billing=SUB"],
    }
    path.write_text(yaml.safe_dump({"accounts": [root, shop]}))
    return path


@pytest.mark.feature("signed requests: producer, consumer, mqadmin")
@pytest.mark.parametrize("version", VERSIONS)
async def test_accounts_have_the_permissions_of_their_rules_and_others_none(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    java = java_clients.shared(version, TOLD)
    async with (
        run_broker(tmp_path / "broker", acl=written(tmp_path)) as cluster,
        admin_tool(version, tmp_path / "home") as tool,
    ):
        where = ("-n", cluster.nameserver, "-b", cluster.broker_address)
        define = ("updateTopic", *where, "-t", TOPIC, "-r", "1", "-w", "1")
        refused = await tool.run(*define, account=SHOP.access_key, secret=SHOP.secret)
        assert "Need admin permission for request code=17" in refused
        done = await tool.run(*define, account=ROOT.access_key, secret=ROOT.secret)
        assert "success" in done, done
        scene = Stage(cluster, java, await cluster.client("ours", credentials=ROOT))
        try:
            shop = {"account": SHOP.access_key, "secret": SHOP.secret}
            await scene.start("producer", "p", **shop)
            await scene.start("push", "c", **shop)
            await scene.send("p", [{"body": "é", "key": "k", "tags": "red"}], how="sync")
            await eventually(lambda: scene.java.bodies("c") == ["é"], within_s=30)
            for name, wrong in (("stranger", {}), ("liar", {**shop, "secret": "guessed"})):
                await scene.start("producer", name, **wrong)
                (outcome,) = await scene.send(name, [{"body": "x"}], how="sync")
                assert outcome["code"] == 16, outcome
        finally:
            await java.clear()
