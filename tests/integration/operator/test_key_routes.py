"""Requests on single keys over HTTP, and the errors of invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from testkit.gateway import GROUP, TOPIC, run_gateway

KEYS = f"/api/groups/{GROUP}/topics/{TOPIC}/keys"
NO_RATE = "rate should be messages per second, from 0.001 to 1,000,000, or 0 for no limit"
NO_KEY = "key should be the order key, a string"
NO_FIELD = "unknown field 'resaon': did you mean reason?"
REASON = "should be a one-line reason for the audit topic"
NO_OFFSET = "offset should be the required offset of the key's first message"
NO_RESET = "anew should be true or false: reset the count of deliveries"
NO_NOTE = "note should be a note of one line and at most 500 characters; empty to remove it"
WRONG: list[tuple[str, Any, int, str]] = [
    ("/hop", {"key": "a"}, 404, f"unknown path {KEYS}/hop: see /api/openapi.json"),
    ("/park", [], 400, "the request should be a JSON object"),
    ("/park", {"reason": "x"}, 400, "key is missing: it should be the order key, a string"),
    ("/park", {"key": 5, "reason": "x"}, 400, NO_KEY),
    ("/park", {"key": "a", "reason": "x", "resaon": "x"}, 400, NO_FIELD),
    ("/park", {"key": "a"}, 400, f"reason is missing: it {REASON}"),
    ("/skip", {"key": "a", "reason": "  "}, 400, f"reason {REASON}"),
    ("/redrive", {"key": "a"}, 400, f"reason is missing: it {REASON}"),
    ("/pause", {"key": "a"}, 400, f"reason is missing: it {REASON}"),
    ("/skip", {"key": "a", "reason": "x", "offset": -1}, 400, NO_OFFSET),
    ("/retry", {"key": "a", "reason": "x", "anew": 1}, 400, NO_RESET),
    ("/note", {"key": "a", "reason": "x", "note": "n" * 501}, 400, NO_NOTE),
    ("/note", {"key": "a", "reason": "x", "note": "a\nb"}, 400, NO_NOTE),
    ("/redrive", {"key": "a", "reason": "x", "rate": "5"}, 400, NO_RATE),
    ("/redrive", {"key": "a", "reason": "x", "rate": True}, 400, NO_RATE),
    ("/redrive", {"key": "a", "reason": "x", "rate": -1}, 400, NO_RATE),
    ("/redrive", {"key": "a", "reason": "x", "rate": 5e-324}, 400, NO_RATE),
    ("/redrive", {"key": "a", "reason": "x", "rate": 1e9}, 400, NO_RATE),
]


async def test_an_invalid_request_gets_one_sentence(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway, aiohttp.ClientSession() as http:
        _, at = await gateway.start_proxy()

        async def post(path: str, body: Any) -> tuple[int, str]:
            async with http.post(f"http://{at.http}{path}", json=body) as answer:
                return answer.status, (await answer.json())["error"]

        for path, body, status, sentence in WRONG:
            assert await post(KEYS + path, body) == (status, sentence), body
        unknown = KEYS.replace(TOPIC, "other")
        why = f"this proxy has no group '{GROUP}' with a topic 'other'"
        assert await post(unknown + "/park", {"key": "a", "reason": "x"}) == (404, why)
        async with http.get(f"http://{at.http}{unknown}/parked") as answer:
            assert (answer.status, await answer.json()) == (404, {"error": why})
        status, sentence = await post(f"{KEYS}/stop", {"key": "a", "reason": "x"})
        assert status == 409
        assert sentence.startswith(
            "key 'a' is not being redriven in the queues of 'orders' that this"
        )
