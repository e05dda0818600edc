"""Reading the signing keys of an identity provider, and JWTs at a whole proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from broker_core.clock import wall_ms
from proxy.settings.types import host_port
from testkit.gateway import GROUP, run_gateway
from testkit.thrift_client import connect
from thrift_idl import consumer

KEYS = {kid: ec.generate_private_key(ec.SECP256R1()) for kid in ("k1", "k2")}


def document(*kids: str) -> dict[str, Any]:
    return {
        "keys": [
            {**ECAlgorithm.to_jwk(KEYS[kid].public_key(), as_dict=True), "kid": kid} for kid in kids
        ]
    }


@dataclass
class Provider:
    """Serves keys, or an error."""

    body: Any = field(default_factory=lambda: document("k1"))
    status: int = 200
    reads: int = 0
    url: str = ""

    async def answer(self, _request: web.Request) -> web.Response:
        self.reads += 1
        if self.status == 302:
            return web.Response(status=302, headers={"Location": self.url})
        if isinstance(self.body, bytes):
            return web.Response(body=self.body, status=self.status)
        return web.json_response(self.body, status=self.status)

    def token(self, kid: str = "k1", **claims: Any) -> str:
        now_s = wall_ms() // 1000
        given = {"iss": self.url, "aud": "orderlane", "sub": "ann", "exp": now_s + 3_600, **claims}
        return jwt.encode(given, KEYS[kid], algorithm="ES256", headers={"kid": kid})

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "jwt": {"issuer": self.url, "audience": "orderlane", "jwks_url": self.url, **more},
            "access": [{"principals": ["oidc:ann"], "may": ["pull", "admin"]}],
        }


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    application = web.Application()
    application.router.add_get("/keys", made.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    yield made
    await runner.cleanup()


async def code_of(port: int, token: str) -> int:
    async with connect(port) as client:
        try:
            await client.pull(GROUP, token=token)
        except consumer.PullException as error:
            return error.code
    return 0


async def test_a_jwt_is_accepted_on_both_ports(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway, provider() as idp:
        _, at = await gateway.start_proxy(**{**idp.settings(), "listen.http": "0.0.0.0:0"})
        await asyncio.sleep(1)
        port, http = host_port(at.thrift)[1], host_port(at.http)[1]
        assert await code_of(port, idp.token()) == 0
        assert await code_of(port, idp.token(sub="bob")) == 403
        assert await code_of(port, idp.token(aud="other")) == 401
        async with aiohttp.ClientSession() as session:
            for token, status in ((idp.token(), 200), (idp.token(sub="bob"), 403), ("x.y.z", 401)):
                shown = {"Authorization": f"Bearer {token}"}
                url = f"http://127.0.0.1:{http}/api/groups"
                async with session.get(url, headers=shown) as answer:
                    assert answer.status == status


async def test_a_new_key_is_found_and_a_failing_provider_tolerated(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway, provider() as idp:
        _, at = await gateway.start_proxy(**idp.settings())
        port = host_port(at.thrift)[1]
        await asyncio.sleep(11)
        idp.body = document("k1", "k2")
        assert await code_of(port, idp.token("k2")) == 401
        await asyncio.sleep(11)
        assert await code_of(port, idp.token("k2")) == 0
        idp.status = 500
        await asyncio.sleep(1_000)
        assert await code_of(port, idp.token("k1")) == 0
        idp.status, idp.body = 200, document("k2")  # the first key is withdrawn
        await asyncio.sleep(310)
        assert await code_of(port, idp.token("k1")) == 401
        assert await code_of(port, idp.token("k2")) == 0


async def test_unknown_keys_cause_few_reads(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway, provider() as idp:
        _, at = await gateway.start_proxy(**idp.settings())
        port = host_port(at.thrift)[1]
        for _ in range(60):
            await asyncio.sleep(1)
            assert await code_of(port, idp.token("k2")) == 401
        assert idp.reads <= 8


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"{}"),
        (302, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"keys": []}'),
        (200, b"x" * 2_000_000),
    ],
)
async def test_without_keys_every_jwt_is_refused(tmp_path: Path, status: int, body: bytes) -> None:
    async with run_gateway(tmp_path) as gateway, provider() as idp:
        idp.status, idp.body = status, body
        _, at = await gateway.start_proxy(**idp.settings())
        await asyncio.sleep(30)
        assert await code_of(host_port(at.thrift)[1], idp.token()) == 401
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{at.http}/metrics") as answer,
        ):
            metrics = await answer.text()
        assert "orderlane_signing_key_failures_total 0.0" not in metrics
        assert "\norderlane_signing_keys_age_seconds " not in metrics
