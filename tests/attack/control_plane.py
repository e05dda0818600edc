"""Settings that strangers store, changes at the nameserver, and receivers that they choose."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web

from broker_core.client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import BrokerError
from broker_core.names import Group, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.retry_headers import SendBackHeader
from broker_core.remoting.signing import Credentials
from proxy.core.access.audit_record import AUDIT_TOPIC
from proxy.core.delivery.push_request import CALLBACK_PROPERTY
from proxy.live.store_reading import MAX_REFUSED
from proxy.live.stored_group import NAMESPACE, StoredGroup
from testkit.eventually import until
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation
from tests.integration.delivery.receiver import Received, Receiver, running_receiver
from tests.support.bad_requests import AT_NAMESERVER
from thrift_idl import producer

#: Longer than two looks of a proxy at the store.
_LOOKS_S = 5.0
_ADMIN = Credentials("broker-account", "broker-secret")
_OTHER = Credentials("shop-account", "shop-secret")
#: Has rights to a topic and a group of its own.
_OWN = Credentials("desk-account", "desk-secret")
_WRITES = (
    *(RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG, RequestCode.REGISTER_BROKER),
    *(RequestCode.UNREGISTER_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV),
    *(RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER),
    RequestCode.QUERY_DATA_VERSION,
)


@asynccontextmanager
async def _client(at: Installation, by: Credentials | None = None) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(nameservers=[at.nameserver], client_id="stranger@1", credentials=by)
    try:
        yield client
    finally:
        await client.close()


def _with_store(at: Installation, **others: Any) -> dict[str, Any]:
    (at.folder / "store.key").write_text("k" * 64)
    (at.folder / "token.txt").write_text("Bearer hush")
    return {
        "group_store": "nameserver",
        "group_store_keys": ["store"],
        "secrets": [
            {"name": "store", "file": "store.key", "hosts": []},
            {"name": "token", "file": "token.txt"},
        ],
        **others,
    }


async def _send(at: Installation, callback: str | None = None) -> None:
    client = await at.connect()
    properties = None if callback is None else {CALLBACK_PROPERTY: callback}
    sent = producer.Message(topic=TOPIC, key="k", body=b"x", properties=properties)
    assert (await client.call("sendSync", sent, 30_000)).code == 0
    client.abort()


async def _config(at: Installation) -> dict[str, Any]:
    return _json((await at.ask("/api/config"))[1])


def _json(answer: bytes) -> dict[str, Any]:
    """Return the body of a whole HTTP answer."""
    return dict(orjson.loads(answer.partition(b"\r\n\r\n")[2]))


async def _wait(condition: Any) -> None:
    async with asyncio.timeout(60):
        await until(condition)


@attack(
    "a group stored at the nameserver by one unsigned frame, with the sender's URL and a secret of"
    " the proxy",
    also=(
        "a version that outranks all later changes",
        "thousands of invalid values in the store",
        "a stored group sends a secret to a host of its author",
    ),
    answer="not served; shown and counted; the next change is stored",
)
async def unsigned_groups(at: Installation) -> str:
    at.start_all(settings=_with_store(at))
    async with running_receiver() as stranger, _client(at) as client:
        header = {"name": "Authorization", "secret": "token"}
        push = {"urls": [stranger.url], "headers": [header]}
        evil = {"topics": [{"name": TOPIC, "actions": [{"push": push}]}]}
        values = client.key_values
        text = StoredGroup(2**53 - 1, evil, 1, "admin").encode()
        await values.put(at.nameserver, NAMESPACE, "evil", text)
        for number in range(1_000):
            await values.put(at.nameserver, NAMESPACE, f"e{number}", "x")
        await _send(at)

        async def shown() -> bool:
            return await at.metric("orderlane_config_refused_total") >= MAX_REFUSED

        await _wait(shown)
        await asyncio.sleep(_LOOKS_S)
        config = await _config(at)
        assert [each["group"] for each in config["groups"]] == [GROUP]
        assert await at.metric("orderlane_config_bad") > 0
        # Nor does the HTTP port store a group that sends an unbound secret to its author.
        body: dict[str, Any] = {"settings": evil, "reason": "x"}
        status, answer = await at.ask("/api/groups/mine", orjson.dumps(body), method="PUT")
        assert (status, b"not bound to hosts" in answer) == (409, True)
        body["settings"] = {"topics": [{"name": TOPIC}]}
        status, answer = await at.ask("/api/groups/evil", orjson.dumps(body), method="PUT")
        assert (status, _json(answer)["version"]) == (200, 1)
        assert stranger.received == []
    return f"0 of 1001 values served; {len(config['problems'])} problems shown; 0 requests sent"


@attack(
    "a stored group replayed, moved, changed or deleted",
    also=(
        "a deleted group stored again with its old signature",
        "a value in the store that can be read but not written again, such as a time of 300 digits,"
        " under the name of our key",
    ),
    answer="refused, and the newest signed value is restored",
)
async def replayed_groups(at: Installation) -> str:
    at.start_all(settings=_with_store(at))
    body: dict[str, Any] = {"settings": {"topics": [{"name": TOPIC}]}, "reason": "x"}
    restored = 0
    async with _client(at) as client:
        values = client.key_values

        async def stored(name: str) -> str:
            return (await values.all_of(at.nameserver, NAMESPACE))[name]

        async def is_restored() -> bool:
            return await stored("mine") == newest

        await at.ask("/api/groups/mine", orjson.dumps(body), method="PUT")
        first = await stored("mine")
        body["settings"]["max_leased_jobs"] = 7
        await at.ask("/api/groups/mine", orjson.dumps(body), method="PUT")
        newest = second = await stored("mine")
        await at.ask("/api/groups/another", orjson.dumps(body), method="PUT")
        another = await stored("another")
        changed = second.replace('"max_leased_jobs":7', '"max_leased_jobs":9')
        assert changed != second
        endless = re.sub(r'"written_ms":[0-9]+', '"written_ms":1e300', second)
        assert endless != second
        for text in (first, another, changed, StoredGroup(3, None).encode(), "", endless):
            await values.put(at.nameserver, NAMESPACE, "mine", text)
            await _wait(is_restored)
            restored += 1
        await values.delete(at.nameserver, NAMESPACE, "mine")

        async def is_back() -> bool:
            return (await values.all_of(at.nameserver, NAMESPACE)).get("mine") == newest

        await _wait(is_back)
        assert (await at.ask("/api/groups/mine?reason=x", method="DELETE"))[0] == 200
        newest = await stored("mine")
        for text in (first, second):
            await values.put(at.nameserver, NAMESPACE, "mine", text)
            await _wait(is_restored)
            restored += 1
        assert "mine" not in str((await _config(at))["groups"])
    return f"{restored + 1} of {restored + 1} values restored"


def _start_with_accounts(at: Installation) -> None:
    accounts = {
        "accounts": [
            {"accessKey": _ADMIN.access_key, "secretKey": _ADMIN.secret, "admin": True},
            {
                "accessKey": _OTHER.access_key,
                "secretKey": _OTHER.secret,
                "defaultTopicPerm": "PUB|SUB",
                "defaultGroupPerm": "PUB|SUB",
            },
            {
                "accessKey": _OWN.access_key,
                "secretKey": _OWN.secret,
                "topicPerms": ["desk=PUB|SUB"],
                "groupPerms": ["desk=SUB"],
            },
        ]
    }
    (at.folder / "accounts.yml").write_text(yaml.safe_dump(accounts))
    (at.folder / "account.txt").write_text(_ADMIN.secret)
    at.start_nameserver("--acl", "accounts.yml")
    at.start_broker(acl="accounts.yml")
    at.start_proxy(
        broker_account={"access_key": _ADMIN.access_key, "secret": "account"},
        secrets=[{"name": "account", "file": "account.txt", "hosts": []}],
    )


@attack(
    "a stranger registers a broker, deletes routes or changes values at a nameserver with accounts",
    answer="16, logged with the sender",
)
async def changes_at_the_nameserver(at: Installation) -> str:
    _start_with_accounts(at)
    await _send(at)
    codes = []
    for by in (None, _OTHER, Credentials(_ADMIN.access_key, "guessed-secret")):
        pool = ConnectionPool(credentials=by)
        for code in _WRITES:
            good = AT_NAMESERVER[code]
            command = RemotingCommand(code, ext=good.ext(), body=good.content())
            codes.append((await pool.request(at.nameserver, command, timeout_s=30)).code)
        await pool.close()
    assert set(codes) == {16}, codes
    async with _client(at) as client:
        assert await client.queues(Topic(TOPIC), fresh=True), "routes stay readable"
    assert "request refused" in at.errors()
    return f"{len(codes)} of {len(codes)} changes refused"


@attack(
    "a message of a foreign topic sent back by its place in a broker's log, which copies it to the"
    " sender's group",
    answer="16",
)
async def places_in_the_log(at: Installation) -> str:
    _start_with_accounts(at)
    await _send(at)
    async with _client(at, _ADMIN) as admin, _client(at, _OWN) as desk:
        (queue, *_), places = await admin.queues(Topic(TOPIC), fresh=True), set[int]()
        for each in await admin.queues(Topic(TOPIC)):
            pulled = await admin.pull(each, group=Group("audit"), offset=0, suspend_ms=0)
            places |= {message.physical_offset for message in pulled.messages}
        (place,) = places
        header = SendBackHeader(offset=place, group=Group("desk"), delay_level=0)
        code, ext = RequestCode.CONSUMER_SEND_MSG_BACK, header.to_ext()
        with pytest.raises(BrokerError) as refused:
            await desk.requests.ask(queue.broker, code, ext)
        assert refused.value.code == 16, refused.value
    return "0 of 1 messages copied"


@attack(
    "an account with rights to all topics writes the gateway's records at the broker",
    answer="16: topics that begin with % have to be named",
)
async def records_at_the_broker(at: Installation) -> str:
    _start_with_accounts(at)
    pool = ConnectionPool(credentials=_OTHER)
    codes = []
    for topic in (AUDIT_TOPIC, "%OWN%0123456789abcdef", f"%PARK%{GROUP}", f"%DLQ%{GROUP}"):
        for code in (RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE):
            ext = {"topic": topic, "consumerGroup": "g", "producerGroup": "p", "queueId": "0"}
            command = RemotingCommand(code, ext=ext, body=b"{}")
            codes.append((await pool.request(at.broker, command, timeout_s=30)).code)
    await pool.close()
    assert set(codes) == {16}, codes
    return f"{len(codes)} of {len(codes)} requests refused"


@attack(
    "a message's own URL collects headers, signature or token of the receiver",
    answer="each goes only to the hosts that it is bound to",
)
async def collected_secrets(at: Installation) -> str:
    (at.folder / "token.txt").write_text("Bearer hush")
    async with running_receiver() as ours, running_receiver() as theirs:
        push = {
            "urls": [ours.url],
            "callback_hosts": [f"127.0.0.1:{theirs.port}"],
            "headers": [
                {"name": "Authorization", "secret": "token"},
                {"name": "X-Key", "value": "hush"},
            ],
            "sign_with": ["token"],
            "token_secret": "token",
            "context": ["key", "token"],
        }
        _start_push(at, push, secrets=[{"name": "token", "file": "token.txt"}])
        await _send(at)
        await _send(at, theirs.url)
        await _wait(_has_received(ours))
        await _wait(_has_received(theirs))
        (good,), (bad,) = ours.received, theirs.received
    assert good.headers["Authorization"] == "Bearer hush"
    assert {"X-Key", "Orderlane-Signature"} <= good.headers.keys()
    assert b"token" in good.body
    for name in ("Authorization", "X-Key", "Orderlane-Signature"):
        assert name not in bad.headers, name
    assert b"token" not in bad.body
    return "4 of 4 secrets stayed with their receiver"


@attack(
    "a receiver's name that resolves to loopback, a metadata service or another internal address",
    also=(
        "an internal address in another form: mapped, translated, octal, decimal",
        "a receiver that redirects to another host",
    ),
    answer="no connection is made; the reason names the address",
)
async def internal_receivers(at: Installation) -> str:
    name = socket.gethostname()
    async with running_receiver() as ours, running_receiver() as internal:
        port = internal.port
        hosts = [
            *(name, "2130706433", "127.1", "0x7f000001", "0177.0.0.1", "127.0.0.2", "0.0.0.0"),
            *("[::ffff:127.0.0.2]", "[::ffff:7f00:2]", "[64:ff9b::7f00:2]"),
        ]
        refused = await _refused_settings(at, [f"http://{host}:{port}/" for host in hosts[7:]])
        push = {
            "urls": [ours.url],
            "callback_hosts": [f"{host}:{port}" for host in hosts[:5]],
        }
        ours.answer(_redirect(internal.url))
        _start_push(at, push)
        await _send(at)
        for host in hosts:
            await _send(at, f"http://{host}:{port}/")

        async def dead_lettered() -> bool:
            return await at.metric("orderlane_dlq_total") >= len(hosts)

        await _wait(dead_lettered)
        await _wait(_has_received(ours))
        assert internal.received == [], "a request reached an internal address"
    assert "is not an address in a form such as" in at.errors()
    return f"{len(hosts)} of {len(hosts)} receivers refused, {refused} already in settings"


async def _refused_settings(at: Installation, urls: list[str]) -> int:
    """Check that no stored group may list *urls*; return their number."""
    at.start_all(settings=_with_store(at))
    for url in urls:
        topic = {"name": TOPIC, "actions": [{"push": {"urls": [url]}}]}
        body = orjson.dumps({"settings": {"topics": [topic]}, "reason": "x"})
        status, answer = await at.ask("/api/groups/mine", body, method="PUT")
        assert (status, b"receiver_networks" in answer) == (409, True), url
    return len(urls)


def _start_push(at: Installation, push: dict[str, Any], **settings: Any) -> None:
    topic = {
        "name": TOPIC,
        "on_exhausted": "dead_letter",
        "actions": [{"push": push}],
        "retry_intervals_ms": [100],
    }
    groups = [{"name": GROUP, "topics": [topic]}]
    if at.nameserver:
        at.start_proxy(groups=groups, **settings)
    else:
        at.start_all(settings={"groups": groups, **settings})


def _has_received(receiver: Receiver) -> Any:
    async def condition() -> bool:
        return bool(receiver.received)

    return condition


def _redirect(url: str) -> Any:
    async def reply(_received: Received) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": url})

    return reply
