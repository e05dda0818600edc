"""The HTTP port: strangers, pages of other sites, and malformed requests."""

from __future__ import annotations

import asyncio

import orjson

from proxy.admin.guard import SECURITY_HEADERS
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, token_settings

_DRAIN = "/api/owners/drain"
_RESUME = "/api/owners/resume"
_CHANGE = orjson.dumps({"reason": "because"})
_EVERYWHERE = {
    "listen": {"http": "0.0.0.0:0"},
    **token_settings(
        "ops",
        "dev",
        rules=[
            {"principals": ["ops"], "may": ["admin"]},
            {"principals": ["dev"], "may": ["pull"]},
        ],
    ),
}
#: Paths that need a right, as GET.
_PATHS = ("/api/groups", "/api/openapi.json", f"/api/groups/{GROUP}/offsets", "/api/events")


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@attack(
    "the HTTP port from outside, without a token",
    also=("the console's files from outside, without a token",),
    answer="401 for everything except probes, metrics and the console's own files",
)
async def from_outside(at: Installation) -> str:
    at.start_all(settings=_EVERYWHERE)
    refused = 0
    for path in _PATHS:
        for headers in ({}, _bearer(""), _bearer("wrong"), {"Authorization": "Basic b3Bz"}):
            status, answer = await at.ask(path, **headers)
            assert status == 401, (path, status)
            assert TOPIC.encode() not in answer, path
            refused += 1
    assert (await at.ask(_DRAIN, _CHANGE))[0] == 401
    for path in ("/healthz", "/metrics", "/", "/console/main.js"):
        assert (await at.ask(path))[0] == 200, path
    return f"{refused + 1} of {refused + 1} requests refused; probes, metrics and files answered"


@attack(
    "a consumer's token on the HTTP port",
    also=("a change under another name",),
    answer="403; the audit records the token's principal",
)
async def another_name(at: Installation) -> str:
    at.start_all(settings=_EVERYWHERE)
    assert (await at.ask("/api/groups", **_bearer("dev")))[0] == 403
    assert (await at.ask(_DRAIN, _CHANGE, **_bearer("dev")))[0] == 403
    forged = orjson.dumps({"reason": "because", "by": "anna"})
    assert (await at.ask(_DRAIN, forged, **_bearer("ops")))[0] == 200
    assert (await at.ask(_RESUME, forged, **_bearer("ops")))[0] == 200
    _, answer = await at.ask("/api/audit", **_bearer("ops"))
    records = orjson.loads(answer.partition(b"\r\n\r\n")[2])["records"]
    actors = {each["actor"] for each in records}
    assert actors == {"ops (anna)"}, actors
    return "2 of 2 refused; 2 changes on record as 'ops (anna)'"


@attack(
    "a web page that sends requests from the operator's browser (CSRF)",
    also=(
        "the same with a form or plain text",
        "a page of another site reads the event stream",
        "a site whose name resolves to 127.0.0.1 (DNS rebinding)",
    ),
    answer="403 by Origin, Sec-Fetch-Site and Host, with any token; 415 for forms",
)
async def other_sites(at: Installation) -> str:
    at.start_all()
    refused = 0
    for headers in (
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.test"},
        {"Host": "127.0.0.1.evil.test"},
    ):
        for path, body in ((_DRAIN, _CHANGE), ("/api/events", None), ("/api/groups", None)):
            status, _ = await at.ask(path, body, **headers)
            assert status == 403, (headers, path, status)
            refused += 1
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        status, _ = await at.ask(_DRAIN, _CHANGE, Content_Type=kind)
        assert status == 415, (kind, status)
        refused += 1
    return f"{refused} of {refused} requests refused"


@attack("the port in another site's frame, or in a cache", answer="headers forbid both")
async def frames_and_caches(at: Installation) -> str:
    at.start_all(settings=_EVERYWHERE)
    paths = ("/healthz", "/api/groups", "/nowhere", "/metrics", "/", "/../etc/passwd")
    for path in paths:
        for headers in ({}, _bearer("ops")):
            _, answer = await at.ask(path, **headers)
            head = answer.partition(b"\r\n\r\n")[0].decode()
            missing = [name for name in SECURITY_HEADERS if f"\r\n{name}: " not in head]
            assert not missing, (path, missing)
    return f"{len(SECURITY_HEADERS)} headers in {2 * len(paths)} of {2 * len(paths)} answers"


@attack(
    "two lengths in one HTTP request (smuggling)",
    answer="400, the connection is closed, and the hidden request is not served",
)
async def smuggling(at: Installation) -> str:
    at.start_all()
    hidden = b"GET /api/groups HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    tried = (
        b"Content-Length: 0\r\nContent-Length: 60\r\n",
        b"Content-Length: 60\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Content-Length: +60\r\n",
        b"Content-Length: 6_0\r\n",
        b"Content-Length: 60, 60\r\n",
        b"Content-Length : 60\r\n",
        b"Transfer-Encoding: xchunked\r\n",
    )
    for lengths in tried:
        head = b"POST /api/owners/drain HTTP/1.1\r\nHost: localhost\r\n" + lengths
        status, answer = await at.raw(head + b"\r\n0\r\n\r\n" + hidden)
        assert 400 <= status < 502, (lengths, status)
        assert answer.count(b"HTTP/1.") == 1, lengths
        assert GROUP.encode() not in answer, lengths
    assert not at.has_traceback(), at.errors()
    return f"{len(tried)} of {len(tried)} refused, none of the hidden requests served"


@attack("`../` in a path of the HTTP port", answer="404")
async def paths_that_lead_out(at: Installation) -> str:
    at.start_all()
    tried = (
        *("/../../etc/passwd", "/console/../../../etc/passwd", "/console/..%2f..%2fetc/passwd"),
        *("/console/%2e%2e/surface.py", "/console//etc/passwd", "/api/%00/x", "/console/..\\x"),
    )
    for path in tried:
        status, answer = await at.ask(path)
        assert status in (400, 404), (path, status)
        assert b"root:" not in answer, path
    return f"{len(tried)} of {len(tried)} paths not found"


@attack("the same on the HTTP port", answer="400 in milliseconds")
async def nested_json(at: Installation) -> str:
    at.start_all()
    loop = asyncio.get_running_loop()
    slowest_s = 0.0
    for body in (b"[" * 500_000, b'{"a":' * 100_000, b'{"reason":' + b"[" * 5_000):
        began = loop.time()
        status, _ = await at.ask(_DRAIN, body)
        assert status == 400, status
        slowest_s = max(slowest_s, loop.time() - began)
    return f"3 of 3 refused, the slowest in {slowest_s * 1000:.0f} ms"


@attack(
    "an HTTP head sent that way, or none at all",
    also=("an HTTP body sent that way", "more connections to the HTTP port than the limit"),
    answer="closed after slow_request_s, a body after a 408; others are served",
)
async def slow_requests(at: Installation) -> str:
    at.start_all(settings={"limits": {"slow_request_s": 3, "max_http_connections": 20}})
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    loop = asyncio.get_running_loop()
    began = loop.time()
    nothing, half = await asyncio.gather(at.raw(b""), at.raw(head))
    took_s = loop.time() - began
    assert (nothing, half) == ((0, b""), (0, b""))
    body = b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    post = b"POST /api/owners/drain HTTP/1.1\r\nHost: localhost\r\n" + body
    status, _ = await at.raw(post)
    assert status == 408, status
    many = await asyncio.gather(*(at.open(at.http) for _ in range(60)))
    for _, writer in many:
        writer.close()
    async with asyncio.timeout(30):
        while (await at.ask("/healthz"))[0] != 200:
            pass  # until the closed ones no longer count
    dropped = await at.metric("orderlane_dropped_connections_total")
    assert dropped >= 2, dropped
    return f"closed after {took_s:.1f} s of 3 s; 408 for the body; 60 connections, limit 20"
