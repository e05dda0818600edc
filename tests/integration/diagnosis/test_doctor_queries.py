"""The proxies that ``orderlane doctor`` queries, unreachable ones, and checks without a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testkit.eventually import eventually
from tests.integration.diagnosis.doctor import (
    TEN_MINUTES_MS,
    failed,
    failing,
    findings,
)
from tests.integration.operator.queue_site import site
from tests.support.command_line import CommandLine
from tests.support.consumers import consuming

# ---- who is asked --------------------------------------------------------------------------------


async def test_if_the_given_proxy_is_unreachable_others_are_queried(tmp_path: Path) -> None:
    """The owners of the queues are read from the brokers."""
    async with (
        site(tmp_path, topic={"retry_intervals_ms": TEN_MINUTES_MS}) as it,
        consuming(it.gateway, it.at.thrift, "one", handle=failing),
    ):
        await it.send("a", "a")
        await eventually(lambda: failed(it) == 1, within_s=20)
        found = await findings(it, http="127.0.0.1:1")
        assert [each["cause"] for each in found] == ["proxy_away", "key_blocked"]
        assert "no proxy answers at http://127.0.0.1:1/" in found[0]["sentence"]


async def test_no_proxy_answers_at_all(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        async with consuming(it.gateway, it.at.thrift, "one"):
            await it.send("a")
            await eventually(it.gateway.all_finished, within_s=20)
        await it.gateway.close_proxy(it.proxy)
        await it.send("b")
        (found,) = await findings(it)
        assert found["cause"] == "proxy_away"


async def test_a_finding_of_another_proxy_is_found(tmp_path: Path) -> None:
    patient = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}
    retry = {"retry_intervals_ms": TEN_MINUTES_MS}
    async with site(tmp_path, queues=2, lock=patient, topic=retry) as it:
        other, there = await it.gateway.start_proxy()
        async with (
            consuming(it.gateway, it.at.thrift, "one", handle=failing),
            consuming(it.gateway, there.thrift, "two", handle=failing),
        ):
            await eventually(
                lambda: (
                    [sum(map(len, (x.statistics() for x in p.lanes))) for p in (it.proxy, other)]
                    == [1, 1]
                ),
                within_s=20,
            )
            await it.send(*"abcd")
            await eventually(lambda: failed(it) == 4, within_s=20)
            (found,) = await findings(it)
            assert found["cause"] == "key_blocked"
            assert found["what"].startswith(
                "4 keys of orders fail with errors such as 'ValueError: no account "
            )


@pytest.mark.parametrize(
    "where",
    [
        ("--http", "http://127.0.0.1:1"),
        ("--http", "127.0.0.1:1,proxy-2"),
        ("--nameserver", "127.0.0.1:99999"),
    ],
)
def test_an_invalid_address_is_an_error_not_a_finding(orderlane: CommandLine, where: Any) -> None:
    assert orderlane.problem("doctor", "billing", *where).startswith("address '")


# ---- without a group -----------------------------------------------------------------------------


def test_tls_files_for_brokers_are_checked(orderlane: CommandLine, tmp_path: Path) -> None:
    settings = tmp_path / "orderlane.yaml"
    settings.write_text("broker_tls: {ca: missing.pem}")
    away = ("--nameserver", "127.0.0.1:1", "--http", "127.0.0.1:1")
    found = orderlane("doctor", "--settings", settings, *away, "-o", "json")
    (row,) = [row for row in found.json if row["check"] == "settings"]
    assert row["result"] == "wrong"
    assert "broker_tls.ca" in row["finding"]
    assert "missing.pem" in row["finding"]
