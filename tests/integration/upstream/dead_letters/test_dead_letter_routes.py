"""Operators' requests for dead letters over HTTP, and the errors for invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from broker_core.names import Topic
from broker_core.remoting.route_bodies import Perm
from testkit.gateway import GROUP, run_gateway

PLACE = f"/api/groups/{GROUP}/dead-letters"
NO_RATE = "rate should be messages per second, from 0.001 to 1,000,000, or 0 for no limit"
NO_SKIP = 'skip should be a list of dead letters, such as ["broker-a_0@17"]'
NOT_THERE = f"group '{GROUP}' has no dead letters: topic %DLQ%{GROUP} does not exist"
UNKNOWN = (
    "there is no group 'other' here, and no dead letters of it: topic %DLQ%other does not exist"
)
NO_REASON = "reason is missing: it should be a one-line reason for the audit topic"
WRONG: list[tuple[str, Any, int, str]] = [
    ("/park", {}, 404, f"unknown path {PLACE}/park: see /api/openapi.json"),
    ("/redrive", [], 400, "the request should be a JSON object"),
    ("/redrive", {"reason": "x", "rate": "5"}, 400, NO_RATE),
    ("/redrive", {"reason": "x", "rate": True}, 400, NO_RATE),
    ("/redrive", {"reason": "x", "rate": -1}, 400, NO_RATE),
    ("/redrive", {"reason": "x", "rate": 5e-324}, 400, NO_RATE),
    ("/redrive", {"reason": "x", "skip": "broker-a_0@17"}, 400, NO_SKIP),
    ("/redrive", {"reason": "x", "skip": [17]}, 400, NO_SKIP),
    ("/redrive", {"reason": "x"}, 404, NOT_THERE),
    ("/redrive", {}, 400, NO_REASON),
    ("/stop", {}, 400, NO_REASON),
]


async def test_an_invalid_request_gets_one_sentence(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway, aiohttp.ClientSession() as http:
        _, at = await gateway.start_proxy()

        async def ask(path: str, body: Any = None) -> tuple[int, str]:
            method = "GET" if body is None else "POST"
            async with http.request(method, f"http://{at.http}{path}", json=body) as answer:
                return answer.status, (await answer.json())["error"]

        for path, body, status, sentence in WRONG:
            assert await ask(PLACE + path, body) == (status, sentence), body
        for limit in ("0", "x", "10001", ""):
            expected = (400, "limit should be a number from 1 to 10,000")
            assert await ask(f"{PLACE}?limit={limit}") == expected
        assert await ask(PLACE.replace(GROUP, "other")) == (404, UNKNOWN)
        status, sentence = await ask(PLACE.replace(GROUP, "a%20b"))
        assert (status, sentence[:37]) == (404, "group 'a b' is not a legal name: 1 to")

        await gateway.client.create_topic(
            gateway.dead_letter_topic, queues=1, broker=gateway.queue(0).broker
        )
        assert await ask(f"{PLACE}/redrive", {"skip": ["17"], "reason": "x"}) == (
            409,
            "'17' is not a dead letter: write a queue (broker-a_0), '@' and an offset",
        )
        # Older brokers of RocketMQ create it so.
        await gateway.client.create_topic(Topic("%DLQ%old"), queues=1, perm=Perm.WRITE)
        assert await ask(PLACE.replace(GROUP, "old")) == (
            409,
            "topic %DLQ%old is not readable: set its permission to 6 (RW)",
        )


async def test_a_group_without_dead_letters_has_an_empty_list(tmp_path: Path) -> None:
    """The topic for them is created with the first one."""
    async with run_gateway(tmp_path, queues=1) as gateway, aiohttp.ClientSession() as http:
        _, at = await gateway.start_proxy()
        for query in ("", "?positions=broker-a_0@17"):
            async with http.get(f"http://{at.http}{PLACE}{query}") as answer:
                assert (answer.status, await answer.json()) == (
                    200,
                    {
                        "group": GROUP,
                        "positions": "",
                        "waiting": 0,
                        "dead_letters": [],
                        "complete": True,
                        "redrive": None,
                        "unanswered": {},
                    },
                )
        async with http.get(f"http://{at.http}{PLACE}/export") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        async with http.get(f"http://{at.http}{PLACE}/show?dead_letter=broker-a_0@0") as answer:
            assert (answer.status, (await answer.json())["error"]) == (404, NOT_THERE)
