"""/healthz, /readyz, /metrics and /api/groups over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import ANY

import aiohttp
import orjson
import pytest
import structlog

from proxy.admin.http import AdminHttp
from proxy.admin.metric_families import Scrape
from proxy.admin.metrics_collector import ProxyCollector
from proxy.admin.snapshots import groups_view
from proxy.core.jobs.window import Budget
from proxy.lane.topic_rules import rules_of
from proxy.observe.metrics import definitions
from testkit.lanes import GROUP, make_lane, open_guard
from testkit.messages import held_bytes, keyed
from testkit.pipelines import Budgets, lease, pipeline, queue

KEYS = ("secret", "secret", "l")
MESSAGES = [keyed(offset, key) for offset, key in enumerate(KEYS)]
FIGURES = {
    "queues": 1,
    "unowned": 0,
    "elsewhere": 0,
    "unknown": 0,
    "lag": 3,
    "unfinished": 3,
    "blocked": 1,
    "parked": 0,
    "parked_keys": 0,
    "paused_keys": 0,
    "oldest_ms": 0,
}


class Admin:
    """A running AdminHttp. ``reason``: why the proxy is not ready."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self.reason: str | None = None
        self.port = port
        self._http = http

    async def get(self, path: str) -> tuple[int, str, str]:
        """Return status, content type and text."""
        async with self._http.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return response.status, response.headers["Content-Type"], await response.text()


@asynccontextmanager
async def admin() -> AsyncIterator[Admin]:
    """Return one group with a queue of three messages, one of them leased."""
    lane, memory = make_lane(), Budget(10_000)
    owned = pipeline(
        rules_of(lane.settings.topics[0]),
        of=queue(3),
        epoch=7,
        budgets=Budgets(memory, lane.leases_of_group),
        messages=MESSAGES,
    )
    lane.buffer.add(owned)
    lease(owned, 1)
    collector = ProxyCollector([lane], memory, lambda: {"connections": 2.0})

    async def not_ready() -> str | None:
        return made.reason

    http = AdminHttp(
        scrape=Scrape(collector),
        not_ready=not_ready,
        groups=lambda: groups_view([lane]),
        guard=open_guard(),
    )
    async with aiohttp.ClientSession() as session:
        made = Admin(session, await http.listen("127.0.0.1", 0))
        try:
            yield made
        finally:
            await http.close()


async def test_a_running_process_is_healthy() -> None:
    async with admin() as proxy:
        proxy.reason = "it is draining"
        assert await proxy.get("/healthz") == (200, "text/plain; charset=utf-8", "ok\n")


async def test_readiness_reports_the_reason() -> None:
    async with admin() as proxy:
        assert (await proxy.get("/readyz"))[::2] == (200, "ready\n")
        proxy.reason = "it is draining"
        assert (await proxy.get("/readyz"))[::2] == (503, "not ready: it is draining\n")


async def test_a_load_balancer_may_probe_without_the_text() -> None:
    async with admin() as proxy:
        at = f"http://127.0.0.1:{proxy.port}"
        async with aiohttp.ClientSession() as session:
            for path, expected in (("/healthz", 200), ("/readyz", 503), ("/metrics", 200)):
                proxy.reason = "it is draining" if expected == 503 else None
                async with session.head(at + path) as answer:
                    assert (answer.status, await answer.text()) == (expected, "")


async def test_metrics_are_in_prometheus_text() -> None:
    async with admin() as proxy:
        status, content_type, text = await proxy.get("/metrics")
        assert (status, content_type.partition(";")[0]) == (200, "text/plain")
        assert (
            f'orderlane_inflight{{group="{GROUP}",queue="broker-a_3",topic="orders"}} 1.0' in text
        )
        for each in definitions():
            assert f"# TYPE orderlane_{each.name} " in text
        assert "secret" not in text


async def test_the_groups_are_frozen_statistics_as_json() -> None:
    async with admin() as proxy:
        status, content_type, text = await proxy.get("/api/groups")
        assert (status, content_type) == (200, "application/json")
        assert orjson.loads(text) == {
            GROUP: {
                "state": {
                    "word": "processing",
                    "kind": "busy",
                    "sentence": "messages are being handled",
                },
                "figures": {**FIGURES, "at_ms": ANY},
                "dead_letters": None,
                "dead_letters_at_ms": None,
                "max_rate": None,
                "hand_out": "oldest",
                "start_from": "earliest",
                "mode": "clustering",
                "paused": None,
                "topics": [
                    {
                        "name": "orders",
                        "order_key": "KEY",
                        "max_rate": None,
                        "rate_limited": False,
                        "wanted": False,
                        "delivered": 0,
                        "filtered": 0,
                        "filtered_in_a_row": 0,
                        "expired": 0,
                        "expired_ago_s": None,
                        "missing_key": "by_queue",
                        "keyless_in_a_row": 0,
                        "handler_p50_s": None,
                        "figures": {**FIGURES, "at_ms": ANY},
                    }
                ],
                "taking_part": False,
                "waiting_pulls": 0,
                "bulk_readers": 0,
                "deliveries": [],
                "refused": {},
                "denied": {},
                "clients_seen_s": None,
                "queues": [
                    {
                        "queue": "broker-a_3",
                        "topic": "orders",
                        "for_topic": "orders",
                        "name": "broker-a_3",
                        "epoch": 7,
                        "unfinished": 3,
                        "ready": 1,
                        "leased": 1,
                        "retrying": 0,
                        "blocked": 1,
                        "keys": 2,
                        "spilled": 0,
                        "held_bytes": sum(map(held_bytes, MESSAGES, KEYS)),
                        "base": 0,
                        "committed": 0,
                        "position": 3,
                        "end": 3,
                        "draining": False,
                        "uncopied": 0,
                        "trouble": "",
                        "paused": 0,
                        "paused_whole": False,
                        "near_retention": 0,
                        "records_damaged": False,
                        "damaged": "",
                        "damaged_from": 0,
                        "damaged_until": 0,
                        "recreated": False,
                        "read_trouble": "",
                        "key_rule": "KEY (missing: by_queue)",
                        "oldest_ms": 0,
                        "most_attempts": 0,
                        "window_used": pytest.approx(3 / 20_000),
                        "key_version": 1,
                        "older": 0,
                        "key_change": "",
                        "change_waits_for_parked": False,
                        "reading_paused": "",
                        "sure": True,
                        "parked_keys": 0,
                    }
                ],
                "others": [],
            }
        }
        assert "secret" not in text


@pytest.mark.parametrize("path", ["/", "/api", "/api/groups/billing", "/metrics/../etc/passwd"])
async def test_other_paths_are_not_found(path: str) -> None:
    async with admin() as proxy:
        assert (await proxy.get(path))[0] == 404


async def test_invalid_http_ends_only_its_connection() -> None:
    async with admin() as proxy:
        for garbage in (
            b"\x82\x21\x01\x04pull\r\n\r\n",
            b"GET\r\n\r\n",
            b"\x16\x03\x01\x02\x00\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(garbage + b"\r\n\r\n")
            assert (await reader.read(15)).startswith(b"HTTP/1.")
            assert b"\r\n\r\n" in await reader.read()
            writer.close()
            await writer.wait_closed()
        assert (await proxy.get("/healthz"))[0] == 200


async def test_a_flood_of_invalid_http_logs_one_line() -> None:
    async with admin() as proxy:
        with structlog.testing.capture_logs() as logs:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(b"\x16\x03\x01\x02\r\n\r\n")
                await reader.read()
                writer.close()
    assert [line["event"] for line in logs] == ["malformed HTTP request"]


async def test_a_port_in_use_is_an_os_error() -> None:
    async with admin() as proxy:
        other = AdminHttp(scrape=Scrape(), not_ready=_never, groups=_no_groups, guard=open_guard())
        with pytest.raises(OSError, match="address already in use"):
            await other.listen("127.0.0.1", proxy.port)
        await other.close()


async def _never() -> str | None:
    return None


async def _no_groups() -> dict[str, object]:
    return {}
