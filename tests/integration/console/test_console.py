"""The console's server side: files and headers, overview, stream, series, clients."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import structlog
from aiohttp import web
from structlog.testing import capture_logs

from proxy.admin.guard import SECURITY_HEADERS
from proxy.admin.openapi import document
from proxy.admin.operations import Call
from proxy.admin.shared import of_any_worker
from proxy.app import Proxy
from proxy.console import surface
from proxy.console.key_verbs import NAME, key_verbs_js
from proxy.console.pages import POLICY, Pages
from proxy.errors import OwnedElsewhere
from testkit.eventually import eventually
from testkit.gateway import GROUP, TOPIC, Gateway, run_gateway
from testkit.processes import ROOT
from tests.support.consumers import consuming

STATIC = ROOT / "proxy/console/static"


@asynccontextmanager
async def served(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Gateway, Proxy, str]]:
    async with run_gateway(tmp_path) as gateway:
        proxy, at = await gateway.start_proxy(**settings)
        yield gateway, proxy, at.http


async def ask(http: str, path: str, **headers: str) -> tuple[int, Any, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{http}{path}", headers=headers) as answer,
    ):
        return answer.status, answer.headers, await answer.read()


async def test_all_files_of_the_console_have_a_strict_policy(tmp_path: Path) -> None:
    kinds = {"css": "text/css", "html": "text/html", "js": "text/javascript"}
    async with served(tmp_path) as (_, _, http):
        for name in [*Pages().names, ""]:
            path = f"/console/{name}" if name else "/"
            status, headers, body = await ask(http, path)
            file = STATIC / (name or "index.html")
            assert (status, body) == (200, key_verbs_js() if name == NAME else file.read_bytes())
            kind = kinds.get((name or "index.html").rpartition(".")[2], "image/svg+xml")
            assert headers["Content-Type"] == f"{kind}; charset=utf-8"
            for header, value in SECURITY_HEADERS.items():
                expected = POLICY if header == "Content-Security-Policy" else value
                assert headers[header] == expected
        for path in ("/console/", "/console/none.js", "/console/..%2Fsurface.py", "/console/a/b"):
            assert (await ask(http, path))[0] == 404
        assert (await ask(http, "/?token=x"))[0] == 400


def test_the_pages_load_only_files_of_the_proxy() -> None:
    assert "unsafe" not in POLICY
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
    for path in STATIC.iterdir():
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path.name
        assert not re.search(r"\binnerHTML\b|\binsertAdjacentHTML\b|\beval\(|new Function", text)
        outside = re.findall(r"https?://[\w./]*", text)
        assert set(outside) <= {"http://www.w3.org/2000/svg"}, path.name
        if path.suffix == ".js":
            for imported in re.findall(r'from "\./([^"]+)"', text):
                assert imported in Pages().names, f"{path.name} imports {imported}"


async def test_without_a_token_only_the_files_are_served(tmp_path: Path) -> None:
    known = [{"name": "anna", "sha256": "0" * 64}]
    async with served(tmp_path, **{"listen.http": "0.0.0.0:0", "tokens": known}) as (_, _, http):
        local = f"127.0.0.1:{http.rpartition(':')[2]}"
        for path in ("/", "/console/main.js"):
            assert (await ask(local, path, **{"Sec-Fetch-Site": "cross-site"}))[0] == 200
        for path in ("/api/overview", "/api/events", "/api/clients", f"/api/groups/{GROUP}/series"):
            assert (await ask(local, path))[0] == 401


async def test_pages_of_other_sites_cannot_read_the_stream(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, _, http):
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.test"}):
            assert (await ask(http, "/api/events", **headers))[0] == 403
        assert (await ask(http, "/api/events", Host="evil.test"))[0] == 403


async def test_the_stream_sends_the_overview(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, proxy, http), aiohttp.ClientSession() as session:
        async with session.get(f"http://{http}/api/events") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            blocks = []
            async for line in answer.content:
                if line.startswith(b"data: "):
                    blocks.append(orjson.loads(line[6:]))
                    if len(blocks) == 2:
                        break
                    await proxy.console.events.tell()
        _, _, body = await ask(http, "/api/overview")
        overview = orjson.loads(body)
        for event in blocks:
            assert event["proxy"] == overview["proxy"] == proxy.client_id
            assert event["groups"].keys() == {GROUP}
            assert event["groups"][GROUP].keys() == overview["groups"][GROUP].keys()
        await eventually(lambda: proxy.console.events.readers == 0)


async def test_a_page_that_leaves_as_the_stream_ends_logs_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_: web.StreamResponse, data: bytes = b"") -> None:
        ended.set()
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    ended = asyncio.Event()
    monkeypatch.setattr(web.StreamResponse, "write_eof", gone)
    async with (
        served(tmp_path) as (_, proxy, http),
        aiohttp.ClientSession() as session,
        session.get(f"http://{http}/api/events"),
    ):
        with capture_logs() as logs:
            await proxy.console.events.close()
            await asyncio.wait_for(ended.wait(), 5)
            await eventually(lambda: proxy.console.events.readers == 0)
    assert [each for each in logs if each["log_level"] == "error"] == []


async def test_a_page_that_does_not_read_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as (_, proxy, http):
        host, _, port = http.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(f"GET /api/events HTTP/1.1\r\nHost: {http}\r\n\r\n".encode())
        await eventually(lambda: proxy.console.events.readers == 1)
        events = proxy.console.events

        async def large() -> dict[str, object]:
            return {"groups": "x" * 4_000_000}  # more than sockets buffer

        monkeypatch.setattr(proxy.console, "overview", large)
        for _ in range(60):
            await events.tell()
            await asyncio.sleep(0.01)
            if events.dropped:
                break
        assert (events.dropped, events.readers) == (1, 0)
        metric = rb'orderlane_dropped_connections_total\{limit="slow_reader_s"\} 1\.0'
        assert re.search(metric, (await ask(http, "/metrics"))[2])
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1 << 30)
        writer.close()


async def test_a_proxy_stops_while_pages_read_its_stream(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as (gateway, proxy, http),
        aiohttp.ClientSession() as session,
        session.get(f"http://{http}/api/events") as answer,
    ):
        await answer.content.readline()
        async with asyncio.timeout(30):
            await gateway.close_proxy(proxy)
            await answer.content.read()


async def test_series_of_the_last_hour_belong_to_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surface, "EVERY_S", 3600)  # after the first, only samples of the test
    async with run_gateway(tmp_path) as gateway:
        proxy, at = await gateway.start_proxy()
        http = at.http
        await gateway.send(list("abc"))
        held = asyncio.Event()
        async with consuming(gateway, at.thrift, "c", handle=lambda _: held.wait()):  # type: ignore[arg-type, return-value]
            await eventually(lambda: sum(each.leased for each in gateway.statistics()) == 3)
            await eventually(lambda: len(gateway.statistics()) == 8)
            await proxy.console.sample()
            held.set()
            await eventually(lambda: sum(each.unfinished for each in gateway.statistics()) == 0)
        await proxy.console.sample()
        status, _, body = await ask(http, f"/api/groups/{GROUP}/series")
        found = orjson.loads(body)
        assert status == 200
        assert len(found["at_ms"]) == len(found["leased"]) >= 3
        assert found["leased"][-2:] == [3, 0]
        assert found["unfinished"][-2:] == [3, 0]
        assert found["acked"][-1] > 0
        assert (await ask(http, "/api/groups/none/series"))[0] == 404


async def test_clients_are_listed_with_their_leases(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        proxy, at = await gateway.start_proxy()
        http = at.http
        await gateway.send(["a", "b"])
        held = asyncio.Event()
        async with consuming(gateway, at.thrift, "c-1", handle=lambda _: held.wait()):  # type: ignore[arg-type, return-value]
            await eventually(lambda: sum(each.leased for each in gateway.statistics()) == 2)
            _, _, body = await ask(http, "/api/clients")
            found = orjson.loads(body)
            holding = [row for row in found["clients"] if row["leases"]]
            assert [row["groups"] for row in holding] == [
                [{"group": GROUP, "client": "c-1", "leases": 2}]
            ]
            assert holding[0]["address"] == "127.0.0.1"
            assert found["connected"] == len(found["clients"]) >= 1
            _, _, body = await ask(http, "/api/clients?group=none")
            assert orjson.loads(body) == {"connected": 0, "clients": []}
            held.set()
        await eventually(lambda: not proxy.servers[0].open)
        _, _, body = await ask(http, "/api/clients")
        assert orjson.loads(body)["clients"] == []


async def test_messages_are_found_by_key_id_and_offset(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, _, http):
        receipts = await gateway.send(["a", "b", "a"])
        place = f"/api/groups/{GROUP}/topics/{TOPIC}/messages"
        _, _, body = await ask(http, f"{place}?key=a")
        found = orjson.loads(body)["messages"]
        of_a = sorted(r.offset for r in receipts if r.queue == receipts[0].queue)
        assert [row["keys"] for row in found] == ["a", "a"]
        assert [row["order_key"] for row in found] == ["a", "a"]
        assert [row["offset"] for row in found] == of_a[:2]

        _, _, body = await ask(http, f"{place}?id={found[0]['message_id']}")
        assert [row["message"] for row in orjson.loads(body)["messages"]] == [found[0]["message"]]

        _, _, body = await ask(http, f"{place}/show?message={found[0]['message']}")
        whole = orjson.loads(body)
        assert orjson.loads(whole["body"])["id"] == "a"
        assert whole["properties"]["KEYS"] == "a"

        _, _, body = await ask(http, f"{place}?key=unknown")
        assert orjson.loads(body)["messages"] == []
        for query, status in (
            ("", 400),
            ("?key=a&id=b", 400),
            ("?key=", 400),
            ("?key=a&limit=65", 400),
            ("/show?message=x", 404),
            ("/show?message=broker-a_0@99", 404),
            ("/show?message=broker-a_77@0", 404),
            ("/show?message=broker-a_0p@0", 404),
        ):
            got, _, body = await ask(http, f"{place}{query}")
            assert (got, bool(orjson.loads(body)["error"])) == (status, True), query
        other = f"/api/groups/{GROUP}/topics/none/messages?key=a"
        assert (await ask(http, other))[0] == 404


async def test_the_openapi_document_omits_the_pages(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, proxy, http):
        _, _, body = await ask(http, "/api/openapi.json")
        paths = orjson.loads(body)["paths"]
        assert {"/api/overview", "/api/events", "/api/clients"} <= paths.keys()
        assert not {"/", "/console/{file}"} & paths.keys()
        assert document(proxy.console.operations(), version="1")["paths"].keys() <= paths.keys()


async def test_a_shared_address_lists_its_workers(
    tmp_path: Path,
) -> None:
    workers = ["127.0.0.1:1", "127.0.0.1:2"]
    async with served(tmp_path) as (_, proxy, _):
        shared = {each.path: each for each in of_any_worker(proxy.console.operations(), workers)}
        for path in ("/api/overview", "/api/events", "/api/groups/{group}/series"):
            with pytest.raises(OwnedElsewhere, match="this address is shared") as refused:
                await shared[path].handle(Call({}))
            assert list(refused.value.addresses) == workers
        page = await shared["/"].handle(Call({}))
        assert page.status == 200


async def test_one_failed_sample_does_not_end_the_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def add(_series: object, at_ms: int, _figures: object, *, at_ns: int) -> None:
        taken.append(at_ms + at_ns)
        if len(taken) == 1:
            raise ValueError("a bug")

    monkeypatch.setattr(surface, "EVERY_S", 0.001)
    monkeypatch.setattr(surface.Series, "add", add)
    with structlog.testing.capture_logs() as logs:
        async with served(tmp_path):
            await eventually(lambda: len(taken) > 2)
    assert [line["event"] for line in logs if line.get("exc_info")] == [
        "sampling for the console's charts failed"
    ]
