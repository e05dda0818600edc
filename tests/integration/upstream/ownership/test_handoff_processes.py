"""A real process is killed while a queue is given to it by name."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from testkit.brokers import Brokers
from testkit.processes import Children, wait_until
from tests.support.process_site import (
    QUEUES,
    Site,
    ask,
    children_in,
    events,
    finish_pair,
    kill,
    make_patient,
    start_pair,
)


@pytest.fixture
def site(tmp_path: Path, brokers: Brokers) -> Iterator[Site]:
    with children_in(tmp_path) as children:
        path = tmp_path / "settings.yaml"
        make_patient(tmp_path)
        # Long enough for stopped clients to keep their messages until the hand-over.
        path.write_text(path.read_text().replace("timeout_s: 30}", "timeout_s: 10}"))
        site = Site(children, brokers)
        site.start()
        yield site


def periods(children: Children, queue: str, *more: str) -> list[dict[str, Any]]:
    """Return starts and ends of periods of *queue*, and its events of *more* kinds."""
    return [each for each in events(children, "own+", "own-", *more) if each["queue"] == queue]


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
def test_a_queue_is_taken_back_when_the_named_proxy_is_killed(site: Site) -> None:
    """It is killed while the owner waits for leased messages, so the last record names an absent
    proxy, for which no member waits.
    """
    children, pair = site.children, start_pair(site)
    owner, named = pair.gateway.http

    def leased() -> list[str]:
        return [each["queue"] for each in pair.gateway.queues(0) if each["leased"]]

    for consumer in pair.consumers:
        consumer.pause()
    wait_until(leased, within_s=30, what="work at the owner")
    queue = leased()[0]
    place = f"/api/groups/{site.group}/topics/{site.topic}/queues/{queue}"
    to = ask(named, f"{place}/expect")["to"]
    with ThreadPoolExecutor(1) as threads:
        handing_over = threads.submit(ask, owner, f"{place}/handoff", to=to)
        # Not any drain: the named proxy may have had the queue before.
        wait_until(
            lambda: periods(children, queue, "drain")[-1]["e"] != "own+",
            within_s=30,
            what="the owner waits for its clients",
        )
        assert periods(children, queue)[-1]["e"] == "own+", "it should not be over by now"
        kill(children, pair.proxies[1])
        for consumer in pair.consumers:
            consumer.resume()
        assert handing_over.result(60)["to"] == to
    wait_until(lambda: len(pair.gateway.owned(0)) == QUEUES, within_s=60, what="all queues at one")
    finish_pair(site, pair)
    *_, before, end, after, _ = periods(children, queue)

    assert (before["e"], end["e"], after["e"]) == ("own+", "own-", "own+")
    assert before["owner"] == after["owner"] != to
