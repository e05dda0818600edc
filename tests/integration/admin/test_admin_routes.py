"""Operations over HTTP: malformed requests get one sentence as JSON."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import aiohttp
import pytest
import structlog
from aiohttp import web
from pydantic import Field

from broker_core.errors import ConnectionLost
from proxy.admin.guard import Guard
from proxy.admin.openapi import document
from proxy.admin.operations import NDJSON, Call, Operation, get, post
from proxy.admin.routes import MAX_BODY_BYTES, application
from proxy.core.limits.quotas import Quota, Quotas
from proxy.errors import OrderlaneError, OwnedElsewhere, Unavailable, UnknownName
from proxy.net.principals import Principals
from proxy.operator.request_models import Answer, ChangeBody, Listed, RequestModel, Streamed
from proxy.settings.proxy_settings import Settings
from testkit.eventually import eventually
from testkit.lanes import open_guard


class LookQuery(RequestModel):
    limit: Annotated[int, Field(description="a number from 1 to 9", ge=1, le=9)] = 5
    all: Annotated[bool, Field(description="true or false")] = False
    pace: Annotated[float | None, Field(description="a number from 0 on", ge=0)] = None


class Turn(ChangeBody):
    times: Annotated[int, Field(description="a number from 1 to 3", ge=1, le=3)]


class Seen(Answer):
    said: str


ERRORS: dict[str, Exception] = {
    "unknown": UnknownName("there is no such group"),
    "elsewhere": OwnedElsewhere("ask the other one", addresses=("h:1", "h:2")),
    "state": OrderlaneError("it is not parked"),
    "away": Unavailable("no broker takes it"),
    "broker": ConnectionLost("gone"),
    "bug": KeyError("oops"),
}


async def _look(call: Call) -> dict[str, Any]:
    asked: LookQuery = call.query
    if call.path["group"] in ERRORS:
        raise ERRORS[call.path["group"]]
    return {"said": f"{call.path['group']} {asked.limit} {asked.all} {asked.pace}"}


async def _turn(call: Call) -> Seen:
    asked: Turn = call.body
    return Seen(said=f"{call.by} {asked.reason} {asked.times}")


#: Groups whose exports have ended.
ENDED: list[str] = []


async def _export(call: Call) -> Streamed:
    unanswered: dict[str, str] = {}

    async def pieces() -> AsyncIterator[bytes]:
        if call.path["group"] == "none":
            return
        if call.path["group"] == "state":
            raise ERRORS["state"]
        try:
            while call.path["group"] == "endless":
                yield b"0\n" * 5_000
        finally:
            ENDED.append(call.path["group"])
        if call.path["group"] == "partly":
            unanswered.update({"broker-b": "no answer", "broker-a": "gone"})
        yield b"1\n"
        yield b"2\n"
        if unanswered:
            raise Unavailable("messages are missing")

    return Streamed(pieces(), unanswered)


async def _list(call: Call) -> Listed:
    partly = call.path["group"] == "partly"
    return Listed([{"said": "1"}], {"broker-b": "no answer"} if partly else {})


OPERATIONS: list[Operation] = [
    get("/api/{group}", "Look.", _look, query=LookQuery, answer=Seen, errors=(404, 503)),
    post("/api/{group}/turn", "Turn.", _turn, body=Turn, answer=Seen, errors=(404,)),
    get("/api/{group}/export", "All.", _export, media=NDJSON),
    get("/api/{group}/list", "List.", _list, answer=list[Seen], partly=True),
]


class Asking:
    """Sends requests to a server of OPERATIONS."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self.http, self.port = http, port

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        async with self.http.request(method, f"http://127.0.0.1:{self.port}{path}", **more) as got:
            self.headers = got.headers
            return got.status, await got.json(content_type=None)


@asynccontextmanager
async def asking(guard: Guard | None = None) -> AsyncIterator[Asking]:
    served = application(OPERATIONS, guard or open_guard())
    runner = web.AppRunner(served, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as http:
            yield Asking(http, runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def test_handlers_receive_validated_requests() -> None:
    async with asking() as it:
        assert await it.ask("GET", "/api/a%2Fb") == (200, {"said": "a/b 5 False None"})
        expected = (200, {"said": "g 9 True 2.5"})
        assert await it.ask("GET", "/api/g?limit=9&all=true&pace=2.5") == expected
        body = {"reason": "why", "by": "ann", "times": 2}
        assert await it.ask("POST", "/api/g/turn", json=body) == (200, {"said": "ann why 2"})
        assert await it.ask("POST", "/api/g/turn", json={**body, "times": 2.0}) == (
            *(200, {"said": "ann why 2"}),
        )
        del body["by"]
        assert await it.ask("POST", "/api/g/turn", json=body) == (200, {"said": "127.0.0.1 why 2"})


async def test_an_export_is_charged_to_its_caller() -> None:
    """It has most of the bytes, and cost nothing of a quota of bytes."""
    ann = {"name": "ann", "sha256": hashlib.sha256(b"ann").hexdigest()}
    quotas = Quotas(Quota(bytes_per_s=1_000))
    principals = Principals(Settings.model_validate({"tokens": [ann]}))
    async with asking(Guard(principals, loopback=False, quotas=quotas)) as it:
        shown = {"Authorization": "Bearer ann"}
        place = f"http://127.0.0.1:{it.port}/api"
        async with it.http.get(f"{place}/g/export", headers=shown) as got:
            assert (got.status, await got.read()) == (200, b"1\n2\n")
        ((name, account),) = quotas.accounts()
        assert (name, account.usage.bytes) == ("ann", 4)
        async with it.http.get(f"{place}/endless/export", headers=shown) as got:
            assert len(await got.content.readexactly(20_000)) == 20_000
            status, refused = await it.ask("GET", "/api/g", headers=shown)
            assert (status, "bytes_per_s" in refused["error"]) == (429, True)


LIMIT = "limit should be a number from 1 to 9"
REASON = "reason should be a one-line reason for the audit topic"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("limit=x", LIMIT),
        ("limit=10", LIMIT),
        ("limit=5.0", LIMIT),
        ("limit=%205", LIMIT),
        ("limit=1_0", LIMIT),
        ("limit=", LIMIT),
        ("all=1", "all should be true or false"),
        ("pace=nan", "pace should be a number from 0 on"),
        ("limit=1&limit=2", "'limit' is given twice"),
        ("limt=1", "unknown field 'limt': did you mean limit?"),
        ("zzz=%FF", "the query string should be UTF-8"),
        ("limit=1&%fe=a", "the query string should be UTF-8"),
        ("limit=1%ED%A0%80", "the query string should be UTF-8"),
        ("zzz=1", "unknown field 'zzz': known fields: limit, all, pace"),
    ],
)
async def test_an_invalid_query_is_refused(query: str, sentence: str) -> None:
    async with asking() as it:
        assert await it.ask("GET", f"/api/g?{query}") == (400, {"error": sentence})


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            {"times": 1},
            "reason is missing: it should be a one-line reason for the audit topic",
        ),
        ({"times": 1, "reason": " \t"}, REASON),
        ({"times": 1, "reason": "a\nb"}, REASON),
        ({"times": "1", "reason": "x"}, "times should be a number from 1 to 3"),
        ({"times": 9, "reason": ""}, f"{REASON}; times should be a number from 1 to 3"),
        ([], "the request should be a JSON object"),
        (None, "the request should be a JSON object"),
    ],
)
async def test_an_invalid_body_is_refused(body: Any, sentence: str) -> None:
    async with asking() as it:
        headers = {"Content-Type": "application/json"}
        more: dict[str, Any] = {"data": b"null", "headers": headers} if body is None else {}
        answer = await it.ask("POST", "/api/g/turn", **(more or {"json": body}))
        assert answer == (400, {"error": sentence})


async def test_bodies_other_than_json_objects_are_refused() -> None:
    headers = {"Content-Type": "application/json"}
    async with asking() as it:
        for data in (b"", b"{", b"\xff\x00", b"[" * 5000, b'{"reason": "\\ud800"}'):
            status, answer = await it.ask("POST", "/api/g/turn", data=data, headers=headers)
            assert status == 400, data
            assert answer["error"].startswith("the request should be a JSON object"), data
        too_long = io.BytesIO(b'"' + b"x" * MAX_BODY_BYTES + b'"')
        status, answer = await it.ask("POST", "/api/g/turn", data=too_long, headers=headers)
        assert (status, answer) == (413, {"error": "the request body exceeds 1,048,576 bytes"})


async def test_content_types_that_pages_can_send_are_refused() -> None:
    async with asking() as it:
        for more in ({"data": {"times": "1"}}, {"data": "{}"}, {"data": b"{}"}):
            assert await it.ask("POST", "/api/g/turn", **more) == (
                415,
                {"error": "send the request with Content-Type: application/json"},
            )


async def test_wrong_methods_and_paths_are_answered_as_json() -> None:
    async with asking() as it:
        expected = {"error": "/api/g/turn supports POST, not PUT"}
        assert await it.ask("PUT", "/api/g/turn") == (405, expected)
        assert it.headers["Allow"] == "POST"
        for path in ("/", "/api/g/other", "/api//turn", "/api/%00/x", "/api/%ff/x"):
            status, answer = await it.ask("GET", path)
            assert (status, answer["error"][:12]) == (404, "unknown path"), path


@pytest.mark.parametrize(
    ("group", "status", "sentence"),
    [
        ("unknown", 404, "there is no such group"),
        ("elsewhere", 421, "ask the other one"),
        ("state", 409, "it is not parked"),
        ("away", 503, "no broker takes it"),
        ("broker", 503, "a broker or nameserver failed: gone"),
        ("bug", 500, "internal error: see the proxy's log"),
    ],
)
async def test_errors_have_a_status_and_one_sentence(
    group: str, status: int, sentence: str
) -> None:
    async with asking() as it:
        found, answer = await it.ask("GET", f"/api/{group}")
        assert (found, answer["error"]) == (status, sentence)
        if status == 421:
            assert answer["owners"] == ["h:1", "h:2"]
            assert it.headers["Orderlane-Owners"] == "h:1, h:2"


async def test_a_stream_is_sent_in_pieces_or_fails_like_other_operations() -> None:
    async with asking() as it:
        place = f"http://127.0.0.1:{it.port}/api"
        async with it.http.get(f"{place}/g/export") as got:
            assert (got.content_type, await got.read()) == (NDJSON, b"1\n2\n")
        async with it.http.get(f"{place}/none/export") as got:
            assert (got.status, await got.read()) == (200, b"")
        assert await it.ask("GET", "/api/state/export") == (409, {"error": "it is not parked"})


async def test_a_list_and_an_export_name_the_brokers_whose_rows_they_lack() -> None:
    async with asking() as it:
        for group, named in (("all", None), ("partly", "broker-b")):
            assert await it.ask("GET", f"/api/{group}/list") == (200, [{"said": "1"}])
            assert it.headers.get("Orderlane-Unanswered") == named
        async with it.http.get(f"http://127.0.0.1:{it.port}/api/partly/export") as got:
            assert got.headers["Orderlane-Unanswered"] == "broker-a, broker-b"
            assert await got.content.readexactly(4) == b"1\n2\n"
            with pytest.raises(aiohttp.ClientPayloadError):
                await got.content.read()
    described = document(OPERATIONS, version="1")["paths"]["/api/{group}/list"]["get"]
    assert list(described["responses"]["200"]["headers"]) == ["Orderlane-Unanswered"]


async def test_a_reader_that_goes_away_ends_its_stream_without_an_error() -> None:
    with structlog.testing.capture_logs() as logs:
        async with asking() as it:
            async with it.http.get(f"http://127.0.0.1:{it.port}/api/endless/export") as got:
                await got.content.readexactly(10)
                got.close()
            await eventually(lambda: "endless" in ENDED)
    assert logs == []


async def test_invalid_paths_on_the_wire_do_no_harm() -> None:
    async with asking() as it:
        for path in (b"/api/%zz", b"/api/%", b"/api/%C0%80?limit=%", b"/%2e%2e/%2e%2e"):
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            status = int((await reader.read()).split(b" ")[1])
            writer.close()
            await writer.wait_closed()
            assert status < 500, path


def test_the_openapi_document_lists_all_operations() -> None:
    made = document(OPERATIONS, version="1")
    assert made["openapi"] == "3.1.0"
    look = made["paths"]["/api/{group}"]["get"]
    assert list(look["responses"]) == ["200", "400", "401", "403", "404", "503"]
    assert [each["name"] for each in look["parameters"]] == ["group", "limit", "all", "pace"]
    assert look["parameters"][1]["schema"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 5,
        "title": "Limit",
        "description": "a number from 1 to 9",
    }
    turn = made["paths"]["/api/{group}/turn"]["post"]
    assert list(turn["responses"]) == ["200", "400", "401", "403", "404", "413", "415"]
    body = made["components"]["schemas"]["Turn"]
    assert (body["required"], body["additionalProperties"]) == (["reason", "times"], False)


def test_each_field_completes_the_error_sentence() -> None:
    """The parts of the error about a wrong value."""
    for model in (LookQuery, Turn):
        assert all(field.description for field in model.model_fields.values())
