"""Names in requests of the HTTP port: every operation of the OpenAPI document, with empty names."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from testkit.gateway import GROUP, TOPIC, run_gateway

NAMES = ("group", "topic", "queue", "client", "target")
PATH = {"group": GROUP, "topic": TOPIC, "queue": "broker-a_0", "lease": "1"}


def named(operation: dict[str, Any], document: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the parameters and the fields of the body that name something."""
    query = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {})
    body: list[str] = []
    for media in content.values():
        schema = media["schema"]
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        body += schema["properties"]
    return [each for each in query if each in NAMES], [each for each in body if each in NAMES]


async def test_an_empty_name_is_refused_by_every_operation(tmp_path: Path) -> None:
    checked = 0
    async with run_gateway(tmp_path) as gateway, aiohttp.ClientSession() as session:
        _, at = await gateway.start_proxy()
        async with session.get(f"http://{at.http}/api/openapi.json") as answer:
            document = await answer.json()
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                url = f"http://{at.http}{path.format(**PATH)}"
                parameters, fields = named(operation, document)
                for name in parameters:
                    async with session.request(method, f"{url}?{name}=") as answer:
                        text = await answer.text()
                        assert (answer.status, f"{name} should be" in text) == (400, True), text
                        checked += 1
                for name in fields:
                    body = {"reason": "r", name: ""}
                    async with session.request(method, url, json=body) as answer:
                        text = await answer.text()
                        assert (answer.status, f"{name} should be" in text) == (400, True), text
                        checked += 1
    assert checked > 15


async def test_another_spelling_of_a_name_in_the_path_is_another_name(tmp_path: Path) -> None:
    spellings = (" ", f"{GROUP} ", GROUP.upper(), f"{GROUP}\n", "b\u0456lling", "%", "*", "..")
    async with run_gateway(tmp_path) as gateway, aiohttp.ClientSession() as session:
        _, at = await gateway.start_proxy()
        for name in spellings:
            for place in (
                f"{quote(name, safe='')}/offsets",
                f"{GROUP}/topics/{quote(name)}/keys/top",
            ):
                async with session.get(f"http://{at.http}/api/groups/{place}") as answer:
                    assert answer.status == 404, (name, await answer.text())
