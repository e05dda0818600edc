"""Names that can be read in two ways, credentials that have ended, callers that take too much."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
import yaml
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm
from thrift.Thrift import TApplicationException

from testkit.revocation import RevokingAuthority
from testkit.thrift_client import ThriftClient, our_pull
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, token_settings
from thrift_idl import consumer, producer

SECRET = "%DLQ%other"
MIXED = [{"name": GROUP, "topics": [{"name": TOPIC}, {"name": SECRET}]}]
RULES = [{"principals": ["ann"], "may": ["pull", "bulk", "produce", "admin"]}]
_REFUSED = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)


async def _code(client: ThriftClient, method: str, *arguments: Any) -> int:
    """Return the code of a refusal, -1 of a fault; 0 for an answer."""
    try:
        answer = await client.call(method, *arguments)
    except consumer.PullException as error:
        return int(error.code)
    except TApplicationException:
        return -1
    if method == "ack":
        return 0 if answer else 401
    if method == "report":
        return 400 if answer.refusal else 0
    return int(getattr(answer, "code", 0) or 0)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(100):
        if await holds():
            return
        await asyncio.sleep(0.3)
    raise AssertionError("it did not happen within 30 s")


async def _pull(client: ThriftClient, token: str | None, **fields: Any) -> int:
    return await _code(client, "pull", our_pull(GROUP, token=token, **fields))


def _calls(name: str) -> list[tuple[str, list[Any]]]:
    """Return calls with *name* as a topic and, at the end, as a queue."""
    offsets = {name: {"broker-a_0": 0}}
    return [
        ("pull", [our_pull(GROUP, topic=name, token="ann")]),
        ("pull", [our_pull(GROUP, topics=[TOPIC, name], token="ann")]),
        ("getConsumeStats", [consumer.ConsumeStatsRequest(GROUP, name, token="ann")]),
        ("fetch", [consumer.FetchRequest("c", GROUP, "", offsets, token="ann")]),
        ("ack", [consumer.AckResult("c", GROUP, "", offsets, token="ann")]),
        ("ranges", [consumer.RangesRequest(GROUP, [name], token="ann")]),
        ("report", [consumer.ProgressReport(GROUP, "c", offsets, token="ann")]),
        ("sendSync", [producer.Message(topic=name, body=b"x", token="ann"), 5_000]),
        ("fetch", [consumer.FetchRequest("c", GROUP, "", {TOPIC: {name: 0}}, token="ann")]),
    ]


@attack(
    "an empty topic or queue name, to be checked as one name and served as all",
    answer="400, a send 11, a fetch a fault",
)
async def empty_names(at: Installation) -> str:
    at.start_all(settings={"groups": MIXED, **token_settings("ann", rules=RULES)})
    client = await at.connect()
    codes = [await _code(client, method, *values) for method, values in _calls("")]
    assert codes == [400, 400, 400, -1, 401, 400, 400, 11, -1], codes
    assert await _pull(client, "ann") == 403
    client.abort()
    return f"{len(codes)} of {len(codes)} refused"


@attack(
    "other spellings of a name: blanks, case, look-alikes, `%` encodings",
    answer="403 or 404, a send 11 or 71; nothing is read",
)
async def other_spellings(at: Installation) -> str:
    at.start_all(settings={"groups": MIXED, **token_settings("ann", rules=RULES)})
    client = await at.connect()
    spellings = (f" {SECRET}", f"{SECRET}\n", SECRET.lower(), "%25DLQ%25other", "\uff05DLQ%other")
    count = 0
    for name in (*spellings, SECRET, " ", "*", f"{TOPIC} "):
        for method, values in _calls(name)[:8]:
            if method in ("ack", "getConsumeStats", "fetch", "sendSync") and name != SECRET:
                continue  # an unknown topic has no offsets, and sends may create one
            code = await _code(client, method, *values)
            assert code, (method, name)
            count += 1
    client.abort()
    return f"{count} of {count} calls refused"


@attack(
    "a topic is added to the group while an allowed pull waits",
    answer="the pull gets nothing of it; the next one is refused",
)
async def added_topic(at: Installation) -> str:
    groups = [
        {"name": GROUP, "topics": [{"name": TOPIC}]},
        {"name": "x", "topics": [{"name": TOPIC}]},
    ]
    proxy = at.start_all(settings={"groups": groups, **token_settings("ann", rules=RULES)})
    client, sender = await at.connect(), await at.connect()
    client.send("pull", our_pull(GROUP, token="ann", linger_ms=8_000))
    await asyncio.sleep(1)
    path = at.folder / "proxy-2.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["groups"][0]["topics"].append({"name": SECRET})
    path.write_text(yaml.safe_dump(settings))
    os.kill(proxy.process.pid, signal.SIGHUP)
    assert not (await client.answer("pull")).messages
    assert await _pull(client, "ann") == 403
    client.abort()
    sender.abort()
    return "0 messages; then 403"


@attack(
    "a topic in the query or body of an HTTP request, beside the group in its path",
    answer="403",
)
async def topics_beside_the_path(at: Installation) -> str:
    open_port = {"listen": {"http": "0.0.0.0:0"}}
    at.start_all(settings={"groups": MIXED, **open_port, **token_settings("ann", rules=RULES)})
    shown = {"Authorization": "Bearer ann"}
    base = f"/api/groups/{GROUP}"
    quoted = SECRET.replace("%", "%25")
    statuses = []
    for place in ("leases", f"leases?topic={quoted}", f"offsets?topic={quoted}", "dead-letters"):
        statuses.append((await at.ask(f"{base}/{place}", **shown))[0])
    body = b'{"reason": "r", "settings": {"topics": [{"name": "%DLQ%other"}]}}'
    statuses.append((await at.ask("/api/groups/new", body, method="PUT", **shown))[0])
    assert set(statuses) == {403}, statuses
    assert (await at.ask(f"{base}/leases?topic={TOPIC}", **shown))[0] == 200
    return f"{len(statuses)} of {len(statuses)} refused"


@attack("a token after its `expires`", answer="401 with its name and end")
async def expired_token(at: Installation) -> str:
    settings = token_settings("ann", "old")
    settings["tokens"][1]["expires"] = "2020-01-31"
    at.start_all(settings=settings)
    client = await at.connect()
    assert await _pull(client, "ann") == 0
    with pytest.raises(consumer.PullException, match="expired at 2020-01-31") as refused:
        await client.pull(GROUP, token="old")
    assert refused.value.code == 401
    client.abort()
    return f"401; {await at.metric('orderlane_refused_calls_total'):.0f} counted"


# ---- identity provider --------------------------------------------------------------------------


class _Provider:
    """Serves its keys, and signs tokens."""

    def __init__(self) -> None:
        self.keys = {
            kid: rsa.generate_private_key(public_exponent=65537, key_size=2048) for kid in "ab"
        }
        self.served = "a"
        self.status = 200
        self.reads = 0
        self.url = ""

    def jwk(self, kid: str) -> dict[str, Any]:
        return {**RSAAlgorithm.to_jwk(self.keys[kid].public_key(), as_dict=True), "kid": kid}

    async def answer(self, _request: web.Request) -> web.Response:
        self.reads += 1
        return web.json_response(
            {"keys": [self.jwk(kid) for kid in self.served]}, status=self.status
        )

    def token(self, kid: str = "a", *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        now_s = int(time.time_ns() // 10**9)
        given = {"iss": self.url, "aud": "orderlane", "sub": "ann", "exp": now_s + 600, **claims}
        return jwt.encode(
            given, self.keys[kid], algorithm="RS256", headers={"kid": "a", **(headers or {})}
        )


@asynccontextmanager
async def _provider(at: Installation) -> AsyncIterator[tuple[_Provider, ThriftClient]]:
    """Run a provider and an installation that trusts it; wait until its tokens are accepted."""
    made = _Provider()
    application = web.Application()
    application.router.add_get("/keys", made.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    trusted = {"issuer": made.url, "audience": "orderlane", "jwks_url": made.url, "refresh_s": 1.0}
    rules = [
        {"principals": ["oidc:ann"], "may": ["pull"]},
        {"principals": ["ops"], "may": ["pull"]},
    ]
    settings = {"jwt": trusted, **token_settings("ops", rules=rules)}
    await asyncio.to_thread(at.start_all, settings=settings)
    client = await at.connect()

    async def is_trusted() -> bool:
        return await _pull(client, made.token()) == 0

    await _until(is_trusted)
    yield made, client
    client.abort()
    await runner.cleanup()


@attack(
    "a JWT with `none`, or signed with a public key as a shared secret",
    also=(
        "a JWT of another issuer, audience or time",
        "a JWT that brings its own key, or names a URL for it",
        "a caller of the provider who chooses the name of a token",
    ),
    answer="401, or 403 for a name without rights",
)
async def forged_jwts(at: Installation) -> str:
    async with _provider(at) as (idp, client):
        public = (
            idp.keys["a"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        claims = jwt.decode(idp.token(), options={"verify_signature": False})
        none = jwt.encode(claims, None, algorithm="none", headers={"kid": "a"})
        # The library refuses to sign with a key in PEM, an attacker's does not.
        shared = jwt.encode(claims, public.replace(b"-----", b"====="), algorithm="HS256")
        other = {"jwk": idp.jwk("b"), "jku": "http://127.0.0.1:1/keys"}
        forged = [
            none,
            shared,
            idp.token(iss="http://evil.test/"),
            idp.token(aud="another"),
            idp.token(exp=1),
            idp.token(nbf=int(time.time_ns() // 10**9) + 900),
            idp.token("b", headers=other),
        ]
        codes = [await _pull(client, each) for each in forged]
        assert codes == [401] * len(forged), codes
        assert await _pull(client, idp.token(sub="ops")) == 403
        assert await _pull(client, idp.token()) == await _pull(client, "ops") == 0
    return f"{len(forged)} of {len(forged)} forged ones refused, the name of a token too"


@attack(
    "JWTs of unknown keys, to flood the provider",
    also=("the identity provider fails, or serves no keys",),
    answer="one read in 10 s at most; the previous keys stay in use",
)
async def failing_provider(at: Installation) -> str:
    async with _provider(at) as (idp, client):
        idp.status, idp.reads = 500, 0
        began = time.monotonic()
        for _ in range(500):
            assert await _pull(client, idp.token("b", headers={"kid": "b"})) == 401
        seconds = time.monotonic() - began
        reads = idp.reads
        assert reads <= 3 + seconds, reads  # the setting refresh_s of this attack is 1 s
        assert await _pull(client, idp.token()) == 0
    return f"500 tokens caused {reads} reads; a known key is accepted while the provider fails"


# ---- certificates -------------------------------------------------------------------------------


async def _is_served(at: Installation, tls: ssl.SSLContext) -> bool:
    try:
        async with asyncio.timeout(30):
            client = await at.connect(tls)
            code = await _pull(client, None)
            client.abort()
    except _REFUSED:
        return False
    return code == 0


@attack(
    "a revoked certificate",
    also=(
        "a revoked certificate on an open connection, or in a resumed session",
        "the revocation list is withheld",
    ),
    answer="the handshake fails; open connections are closed",
)
async def revoked_certificate(at: Installation) -> str:
    folder = at.folder / "revoking"
    folder.mkdir()
    authority = RevokingAuthority(folder)
    for name in ("ann", "bob", "eve"):
        authority.client(name)
    authority.revoke(["eve"])
    at.start_all(settings={"listen": {"tls": authority.settings()}})
    assert not await _is_served(at, authority.client("eve"))
    assert await _is_served(at, authority.client("ann"))
    client = await at.connect(authority.client("bob"))
    assert await _pull(client, None) == 0
    began = time.monotonic()
    authority.revoke(["eve", "bob"])
    assert await client.closed_by_server(within_s=60)
    seconds = time.monotonic() - began
    tls = authority.client("bob")
    assert not await _is_served(at, tls)
    authority.revoke([], ended=True)
    at.start_proxy(listen={"tls": authority.settings()})
    assert not await _is_served(at, authority.client("ann")), "served by a list that has ended"
    return f"an open connection was closed {seconds:.1f} s after the list had changed"


# ---- quotas -------------------------------------------------------------------------------------


@attack(
    "one principal uses the proxy up, with many connections and tokens",
    also=("an address without tokens does so",),
    answer="503 above its quota; others are served",
)
async def above_a_quota(at: Installation) -> str:
    settings = token_settings("ann", "bob", "ann-2")
    settings["tokens"][2]["principal"] = "ann"
    settings["quotas"] = {"default": {"requests_per_s": 1.0}}
    at.start_all(settings=settings)
    clients = [await at.connect() for _ in range(10)]
    counts: dict[str, int] = {}
    began = time.monotonic()
    for number in range(300):
        token = ("ann", "ann-2", "wrong")[number % 3]
        code = await _pull(clients[number % 10], token)
        name = f"{token[:3]} {code}"
        counts[name] = counts.get(name, 0) + 1
    seconds = time.monotonic() - began
    most = seconds + 2  # one a second, a reserve of one, and a rounded one
    assert counts["ann 0"] <= most, counts
    assert counts.get("wro 401", 0) <= most, counts
    assert await _pull(clients[0], "bob") == 0
    refused = counts.get("ann 503", 0) + counts.get("wro 503", 0)
    assert refused, counts
    assert await at.metric("orderlane_principal_refused_total") >= refused
    for each in clients:
        each.abort()
    return f"{counts['ann 0']} of 200 served in {seconds:.1f} s with a quota of 1/s"


@attack(
    "refused calls by the million, to fill disks with their audit",
    answer="one record a minute and source; all are counted",
)
async def floods_of_refusals(at: Installation) -> str:
    proxy = at.start_all(settings=token_settings("ann"))
    client = await at.connect()
    for number in range(2_000):
        assert await _pull(client, f"wrong-{number}") == 401
    client.abort()
    counted = await at.metric("orderlane_refused_calls_total")
    lines = proxy.err.count("call refused")
    assert counted == 2_000
    assert lines <= 3, lines
    return f"{counted:.0f} refused, {lines} log lines"
