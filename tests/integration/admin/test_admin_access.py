"""The HTTP port outside loopback: tokens, rules, cross-site requests, and audited callers."""

from __future__ import annotations

import asyncio
import hashlib
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from proxy.admin.guard import SECURITY_HEADERS, Guard
from proxy.admin.http import AdminHttp
from proxy.admin.metric_families import Scrape
from proxy.admin.operations import EVENTS, Call, get
from proxy.cli.connect import ADMIN_TOKEN, proxy_groups
from proxy.console.events import Events, Reader
from proxy.errors import OrderlaneError
from proxy.net.principals import Principals
from proxy.settings.proxy_settings import Settings
from testkit.gateway import GROUP, TOPIC, run_gateway

TOKENS = [
    {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} for name in ("ops", "dev")
]
RULES = [
    {"principals": ["ops"], "may": ["admin"]},
    {"principals": ["dev"], "may": ["pull"]},
]
DRAIN = "/api/owners/drain"
CHANGE = orjson.dumps({"reason": "because"})


@asynccontextmanager
async def everywhere(tmp_path: Path, **settings: Any) -> AsyncIterator[str]:
    """host:port of the HTTP port of a proxy that listens on all addresses."""
    async with run_gateway(tmp_path) as gateway:
        _, addresses = await gateway.start_proxy(
            **{"listen.http": "0.0.0.0:0", "tokens": TOKENS, "access": RULES, **settings}
        )
        yield f"127.0.0.1:{addresses.http.rpartition(':')[2]}"


async def ask(
    http: str,
    path: str,
    *,
    token: str | None = None,
    body: bytes | None = None,
    method: str | None = None,
    **headers: str,
) -> tuple[int, Any, bytes]:
    """Return status, headers and body of the answer."""
    shown = {} if token is None else {"Authorization": f"Bearer {token}"}
    sent = {"Content-Type": "application/json", **shown}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}

    def asked() -> tuple[int, Any, bytes]:
        url = f"http://{http}{path}"
        request = urllib.request.Request(url, data=body, headers=sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    return await asyncio.to_thread(asked)


async def test_requests_without_a_token_see_only_probes_and_metrics(tmp_path: Path) -> None:
    async with everywhere(tmp_path) as http:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await ask(http, path))[0] == 200
        for path in ("/api/groups", "/api/openapi.json", f"/api/groups/{GROUP}/offsets"):
            for token in (None, "", "wrong"):
                status, headers, body = await ask(http, path, token=token)
                assert status == 401
                assert headers["WWW-Authenticate"] == "Bearer"
                assert TOPIC not in body.decode()
        assert (await ask(http, DRAIN, body=CHANGE))[0] == 401
        _, _, metrics = await ask(http, "/metrics")
        assert b"orderlane_refused_calls_total 10.0" in metrics


async def test_a_token_needs_the_permission_and_its_name_is_audited(
    tmp_path: Path,
) -> None:
    async with everywhere(tmp_path) as http:
        status, _, body = await ask(http, "/api/groups", token="dev")
        assert (status, b"dev has no right admin" in body) == (403, True)
        assert (await ask(http, "/api/groups", token="ops"))[0] == 200

        assert (await ask(http, DRAIN, token="dev", body=CHANGE))[0] == 403
        assert (await ask(http, DRAIN, token="ops", body=CHANGE))[0] == 200
        said = orjson.dumps({"reason": "because", "by": "anna"})
        assert (await ask(http, "/api/owners/resume", token="ops", body=said))[0] == 200
        _, _, audit = await ask(http, "/api/audit", token="ops")
        assert {row["actor"] for row in orjson.loads(audit)["records"]} == {"ops", "ops (anna)"}


async def test_a_deletion_is_audited_under_the_name_of_its_token(tmp_path: Path) -> None:
    async with everywhere(tmp_path, group_store="nameserver") as http:
        settings = {"topics": [{"name": TOPIC}]}
        put = orjson.dumps({"reason": "new", "settings": settings, "by": "anna"})
        place = "/api/groups/stored"
        assert (await ask(http, place, token="ops", body=put, method="PUT"))[0] == 200
        asked = f"{place}?reason=over&by=anna"
        assert (await ask(http, asked, token="ops", method="DELETE"))[0] == 200
        _, _, audit = await ask(http, "/api/audit?group=stored", token="ops")
        audited = [(row["verb"], row["actor"]) for row in orjson.loads(audit)["records"]]
        assert audited == [("groups create", "ops (anna)"), ("groups delete", "ops (anna)")]


async def test_pages_of_other_sites_are_refused_even_with_a_token(tmp_path: Path) -> None:
    async with everywhere(tmp_path) as http:
        for headers in ({"Origin": "https://evil.test"}, {"Sec_Fetch_Site": "cross-site"}):
            status, _, body = await ask(http, DRAIN, token="ops", body=CHANGE, **headers)
            assert (status, b"another site" in body) == (403, True)


async def test_every_answer_has_headers_that_protect_browsers(tmp_path: Path) -> None:
    async with everywhere(tmp_path) as http:
        for path, token in (
            ("/healthz", None),
            ("/api/groups", None),
            ("/api/groups", "ops"),
            ("/nowhere", None),
        ):
            _, headers, _ = await ask(http, path, token=token)
            assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS


async def test_verbs_read_the_token_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with everywhere(tmp_path) as http:
        with pytest.raises(OrderlaneError, match=f"answers 401: .*{ADMIN_TOKEN}"):
            await asyncio.to_thread(proxy_groups, http)
        monkeypatch.setenv(ADMIN_TOKEN, "ops")
        assert GROUP in str(await asyncio.to_thread(proxy_groups, http))


async def test_a_stream_of_events_ends_with_its_token() -> None:
    now_s = [1_800_000_000]  # in January 2027
    settings = Settings.model_validate({"tokens": [{**TOKENS[0], "expires": "2027-03-31"}]})
    principals = Principals(settings, wall_clock_ms=lambda: now_s[0] * 1000)

    async def nothing() -> Any:
        return {}

    async def state() -> bytes:
        return b"{}"

    events = Events(state, every_s=3600)

    async def read(_call: Call) -> Reader:
        return events.read()

    http = AdminHttp(
        scrape=Scrape(),
        not_ready=nothing,
        groups=nothing,
        guard=Guard(principals, loopback=False),
        operations=[get("/api/events", "Events.", read, media=EVENTS)],
    )
    port = await http.listen("127.0.0.1", 0)
    url, headers = f"http://127.0.0.1:{port}/api/events", {"Authorization": "Bearer ops"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.status == 200
        received = b""
        while b"event: overview" not in received:
            received += await answer.content.readany()
        await events.tell()
        assert b"id: 2" in await answer.content.readany()
        now_s[0] += 90 * 86_400
        await events.tell()
        assert await answer.content.read() == b""
        assert events.readers == 0
        async with session.get(url, headers=headers) as again:
            assert again.status == 401
    await events.close()
    await http.close()
