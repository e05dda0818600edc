"""``orderlane doctor GROUP`` reports stopped processes and changed wall clocks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.client import BrokerClient
from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.brokers import EMBEDDED_ONES
from testkit.missing_tools import without
from testkit.processes import wait_until
from tests.chaos.clocks import Clocks
from tests.support.process_site import Site, children_in, look

pytestmark = pytest.mark.slow


def _send(site: Site, count: int) -> None:
    async def send() -> None:
        client = BrokerClient(nameservers=[site.nameserver], client_id="sender@1#1")
        for queue in (await client.writable_queues(Topic(site.topic)))[:count]:
            await client.send(queue, OutgoingMessage(topic=Topic(site.topic), body=b"x", key="k"))
        await client.close()

    asyncio.run(send())


def _doctor(site: Site, http: str) -> list[dict[str, Any]]:
    where = ("--http", http, "--nameserver", site.nameserver)
    ended = site.children.run("doctor", site.group, *where, "-o", "json")
    assert ended.code in (0, 1), ended.err
    return list(orjson.loads(ended.out))


def _moved(http: str) -> bool:
    jumps = look(http, "/api/process")["clock_jumps"]
    return any(jump["kind"] == "wall_clock" for jump in jumps)


def test_a_proxy_that_stalled_longer_than_its_trust_in_locks(tmp_path: Path) -> None:
    """As on a suspended machine: clients present before it have not reconnected."""
    with children_in(tmp_path) as children:
        site = Site(children, EMBEDDED_ONES)
        site.start()
        (proxy,), at = site.start_proxies(1)
        consumer = children.start("consume", site.group, "--proxy", at.thrift[0])
        wait_until(lambda: len(at.queues(0)) == 8, within_s=30, what="all queues owned")
        consumer.pause()
        proxy.pause()
        _send(site, 4)
        time.sleep(2.5)  # twice the time of its trust in locks
        proxy.resume()
        wait_until(
            lambda: look(at.http[0], "/api/process")["clock_jumps"], within_s=20, what="a jump"
        )
        found = _doctor(site, at.http[0])
        assert found, "messages wait"
        assert found[0]["cause"] == "clock_jump"
        assert "its process stalled for" in found[0]["sentence"]
        assert found[0]["since_ms"] is not None
        jumps = look(at.http[0], "/api/process")["clock_jumps"]
        assert max(jump["by_s"] for jump in jumps if jump["kind"] == "stood_still") >= 2.5


def test_a_proxy_whose_wall_clock_was_changed(tmp_path: Path) -> None:
    clocks = Clocks.open(tmp_path / "clocks")
    if clocks.library is None:
        without("gcc not found: no clock can be moved")
    with children_in(tmp_path) as children:
        site = Site(children, EMBEDDED_ONES)
        site.start()
        elsewhere = children.at((), clocks.environment("there"))
        proxy = elsewhere.start(
            *("proxy", "--settings", "settings.yaml", "--nameserver", site.nameserver),
            *("--thrift-port", 0, "--http-port", 0),
        )
        http = proxy.ready()["http"]
        _send(site, 4)
        before = _doctor(site, http)
        assert before[-1]["cause"] == "no_puller"
        assert not any("was set" in each["sentence"] for each in before)
        clocks.move("there", 3600)
        wait_until(lambda: _moved(http), within_s=20, what="a jump")
        found = _doctor(site, http)
        assert (found[0]["cause"], found[-1]["cause"]) == ("clock_jump", "no_puller")
        # On a very busy machine it may also have stalled.
        (sentence,) = [each["sentence"] for each in found if "was set" in each["sentence"]]
        assert "was set 60 min ahead" in sentence
        assert "60 min ahead of the clock of this machine" in sentence
        clocks.move("there", 0)
