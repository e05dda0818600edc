"""TLS and tokens on the Thrift port, at whole proxies."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from broker_core.names import Group, Topic
from broker_core.remoting.half_place import HalfPlace
from proxy.core.access.audit_record import AUDIT_TOPIC
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from proxy.errors import OrderlaneError
from proxy.settings.types import host_port
from testkit.certificates import Certificates, make_certificates
from testkit.gateway import GROUP, TOPIC, Gateway, run_gateway
from testkit.thrift_client import COMPACT, ThriftClient, ddmq_pull, link, our_pull
from tests.support.thrift_calls import ENCODED
from thrift_idl import consumer, producer, producer_service

TOKEN, OLD_TOKEN = "correct horse", "battery staple"
TOKENS = [
    {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest()}
    for name, token in (("new", TOKEN), ("old", OLD_TOKEN))
]
TRANSACTION = HalfPlace("broker-a", TOPIC, GROUP, 0, 0, "id").to_text()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def client_of(
    gateway: Gateway, *, tls: ssl.SSLContext | None = None, **overrides: Any
) -> AsyncIterator[ThriftClient]:
    """Return a raw client of a new proxy."""
    _, addresses = await gateway.start_proxy(**overrides)
    host, port = host_port(addresses.thrift)
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    client = ThriftClient(reader, writer, COMPACT)
    yield client
    client.abort()


def tls_of(certificates: Certificates, *, client_ca: bool = False) -> dict[str, Any]:
    settings = {"certificate": str(certificates.server), "key": str(certificates.server_key)}
    if client_ca:
        settings["client_ca"] = str(certificates.ca)
    return {"listen.tls": settings}


# ---- tokens -------------------------------------------------------------------------------------


def requests(token: str | None) -> list[tuple[str, list[Any]]]:
    """Return a call of every method of the port, with *token*."""
    context = consumer.Context(groupId=GROUP, topic="orders", qid="broker-a_0#1")
    reference = consumer.LeaseRef(context=context, leaseId=1)
    message = producer.Message(topic="orders", body=b"x", token=token)
    return [
        ("pull", [our_pull(GROUP, token=token)]),
        ("submit", [consumer.ConsumeResult(context=context, token=token)]),
        ("settle", [consumer.AckRequest(GROUP, [consumer.AckBatch(context)], token=token)]),
        (
            "extend",
            [consumer.ExtendRequest(groupId=GROUP, leases=[reference], ms=10, token=token)],
        ),
        ("ranges", [consumer.RangesRequest(groupId=GROUP, topics=["orders"], token=token)]),
        ("topics", [consumer.TopicsRequest(GROUP, token=token)]),
        ("report", [consumer.ProgressReport("bulk", "c", {}, token=token)]),
        ("getConsumeStats", [consumer.ConsumeStatsRequest(group=GROUP, token=token)]),
        (
            "fetch",
            [consumer.FetchRequest(consumerId="c", groupId=GROUP, cluster="", token=token)],
        ),
        (
            "ack",
            [
                consumer.AckResult(
                    consumerId="c", groupId="bulk", cluster="", offsets={}, token=token
                )
            ],
        ),
        ("sendSync", [message, 1000]),
        ("sendAsync", [message]),
        ("sendBatchSync", [[message, message]]),
        ("sendEncoded", [producer.EncodedBatch("orders", None, 1, b"b", token=token)]),
        ("sendDelaySync", [producer.DelayMessage(topic="orders", action=1, token=token), 1000]),
        ("prepareTransaction", [producer.PrepareRequest(message, GROUP, token=token)]),
        ("endTransaction", [producer.EndRequest(TRANSACTION, 1, token=token)]),
        ("transactionChecks", [producer.ChecksRequest(GROUP, ["orders"], 0, token=token)]),
        ("writableQueues", [producer.QueuesRequest("orders", token=token)]),
    ]


def refusal_of(method: str, answer: Any) -> int | None:
    """Return the code of a refusal; None for any other answer."""
    if isinstance(answer, consumer.PullException):
        return answer.code
    if method == "ack":
        return None if answer else 401
    code = getattr(answer, "code", None)
    return code if code in (401, 71) else None


async def ask(client: ThriftClient, method: str, arguments: list[Any]) -> Any:
    try:
        return await client.call(method, *arguments)
    except consumer.PullException as error:
        return error


async def test_every_method_asks_for_a_token_that_the_settings_know(tmp_path: Path) -> None:
    """A new method without authorization, or a request without a token, fails here."""
    topics = [{"name": TOPIC, "order_key": "KEY"}]
    groups = [{"name": name, "topics": topics} for name in (GROUP, "bulk")]
    async with (
        run_gateway(tmp_path) as gateway,
        client_of(gateway, tokens=TOKENS, groups=groups) as client,
    ):
        for token, refused in (
            (None, True),
            ("", True),
            ("wrong", True),
            (TOKEN, False),
            (OLD_TOKEN, False),
        ):
            producer_methods = dir(producer_service.Iface)
            for method, arguments in requests(token):
                code = refusal_of(method, await ask(client, method, arguments))
                wanted = 71 if method in producer_methods else 401
                assert code == (wanted if refused else None), (method, token)


async def test_the_sentence_says_what_to_do(tmp_path: Path) -> None:
    async with (
        run_gateway(tmp_path) as gateway,
        client_of(gateway, tokens=TOKENS) as client,
    ):
        for token, sentence in ((None, "option token"), ("x", "invalid token")):
            with pytest.raises(consumer.PullException, match=sentence):
                await client.pull(GROUP, token=token)


async def test_all_messages_of_a_batch_need_the_token(tmp_path: Path) -> None:
    async with (
        run_gateway(tmp_path) as gateway,
        client_of(gateway, tokens=TOKENS) as client,
    ):
        batch = [producer.Message(topic="orders", body=b"x", token=each) for each in (TOKEN, None)]
        assert (await client.call("sendBatchSync", batch)).code == 71
        assert (await client.call("sendBatchSync", [])).code == 71


async def test_a_ddmq_client_without_token_gets_nothing_and_settles_nothing(
    tmp_path: Path,
) -> None:
    """DDMQ's clients cannot handle an exception; their acks have no effect."""
    async with run_gateway(tmp_path) as gateway:
        await gateway.send(["k"])
        async with client_of(gateway, tokens=TOKENS) as client:
            got = consumer.PullResponse(messages=[])
            while not got.messages:
                got = await client.pull(GROUP, token=TOKEN, linger_ms=500)
            offset = got.messages[0].offset
            verdict = link(got.context, success=[offset])
            nothing = await client.call("pull", ddmq_pull(GROUP, result=verdict))
            await asyncio.sleep(0.1)

            assert nothing == consumer.PullResponse(context=consumer.Context(), messages=[])
            assert gateway.events("ack_ok") == []


async def metrics_at(http: str) -> str:
    """Return the metrics of a proxy as Prometheus reads them."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{http}/metrics") as answer:
        return await answer.text()


async def test_refused_calls_are_counted(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, addresses = await gateway.start_proxy(tokens=TOKENS)
        reader, writer = await asyncio.open_connection(*host_port(addresses.thrift))
        client = ThriftClient(reader, writer, COMPACT)
        await ask(client, "pull", [our_pull(GROUP)])

        assert "orderlane_refused_calls_total 1.0" in await metrics_at(addresses.http)
        client.abort()


# ---- TLS ----------------------------------------------------------------------------------------


async def test_a_client_that_trusts_the_authority_is_served_over_tls(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Answers of many megabytes arrive, and the connection continues."""
    async with run_gateway(tmp_path, topic={"visibility_timeout_s": 7.0}) as gateway:
        await gateway.send(
            list("abcdef"), body='{{"key": "{key}", "n": {n}, "x": "' + "x" * 400_000 + '"}}'
        )
        tls = certificates.client_context()
        async with client_of(gateway, tls=tls, **tls_of(certificates)) as client:
            bodies = 0
            while bodies < 6:
                got = await client.pull(GROUP, manyQueues=True, linger_ms=500)
                bodies += sum(len(each.messages) for each in (got, *(got.more or ())))
            assert (await client.pull(GROUP)).messages == []


@pytest.mark.parametrize("shown", ["none", "other", "right"])
async def test_clients_have_to_show_a_certificate_of_the_authority(
    tmp_path: Path, certificates: Certificates, shown: str
) -> None:
    tls = certificates.client_context(own=shown == "right")
    if shown == "other":
        tls.load_cert_chain(certificates.other_client, certificates.other_client_key)
    async with run_gateway(tmp_path) as gateway:
        try:
            async with client_of(
                gateway, tls=tls, **tls_of(certificates, client_ca=True)
            ) as client:
                await client.pull(GROUP)
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            assert shown != "right"
        else:
            assert shown == "right"


async def test_a_client_without_tls_is_hung_up_on_and_others_go_on(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, addresses = await gateway.start_proxy(**tls_of(certificates))
        host, port = host_port(addresses.thrift)
        reader, writer = await asyncio.open_connection(host, port)
        plain = ThriftClient(reader, writer, COMPACT)
        plain.send("pull", our_pull(GROUP))
        async with asyncio.timeout(30):
            assert b"" in (
                await reader.read(100),
                await reader.read(100),
            )  # an alert may come first
        plain.abort()
        reader, writer = await asyncio.open_connection(
            host, port, ssl=certificates.client_context()
        )
        client = ThriftClient(reader, writer, COMPACT)
        assert (await client.pull(GROUP)).messages == []
        client.abort()


async def test_wrong_certificate_files_end_the_start_with_a_sentence(
    tmp_path: Path, certificates: Certificates
) -> None:
    good = tls_of(certificates)["listen.tls"]
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    async with run_gateway(tmp_path) as gateway:
        for wrong, sentence in (
            ({"certificate": str(tmp_path / "no.pem")}, r"listen\.tls\.certificate: cannot read"),
            ({"key": str(certificates.client_key)}, "no certificate and its unencrypted key"),
            ({"certificate": str(nothing)}, "no certificate and its unencrypted key"),
            ({"client_ca": str(nothing)}, r"listen\.tls\.client_ca: .* no PEM certificate"),
        ):
            with pytest.raises(OrderlaneError, match=sentence):
                await gateway.start_proxy(**{"listen.tls": {**good, **wrong}})


# ---- rules --------------------------------------------------------------------------------------

RULES = [
    {"principals": ["new"], "may": ["pull", "produce"], "groups": [GROUP], "topics": [TOPIC]},
    {"principals": ["old"], "may": ["bulk"]},
]
RULED = {"tokens": TOKENS, "access": RULES}


async def test_every_method_is_refused_without_and_served_with_its_right(
    tmp_path: Path,
) -> None:
    groups = [{"name": name, "topics": [{"name": TOPIC}]} for name in (GROUP, "bulk")]
    reading = {"fetch", "ack", "ranges", "topics", "report"}
    async with (
        run_gateway(tmp_path) as gateway,
        client_of(gateway, groups=groups, **RULED) as client,
    ):
        for token, may in (
            (TOKEN, lambda method: method not in reading),
            (OLD_TOKEN, reading.__contains__),
        ):
            for method, arguments in requests(token):
                answer = await ask(client, method, arguments)
                code = getattr(answer, "code", None) if answer is not False else 403
                refused = code in (403, 71)
                assert refused is not may(method), (method, token, answer)


async def test_somebody_elses_group_can_neither_be_pulled_nor_settled(tmp_path: Path) -> None:
    groups = [{"name": name, "topics": [{"name": TOPIC}]} for name in (GROUP, "other")]
    async with run_gateway(tmp_path) as gateway:
        await gateway.send(["k"])
        open_to_all = [*RULES, {"principals": ["old"], "may": ["pull"], "groups": ["other"]}]
        async with client_of(gateway, groups=groups, tokens=TOKENS, access=open_to_all) as client:
            got = consumer.PullResponse(messages=[])
            while not got.messages:
                got = await client.pull("other", token=OLD_TOKEN, linger_ms=500)
            lease = got.messages[0].leaseId
            for group in (GROUP, "other"):
                acks = [consumer.AckBatch(got.context, acked=[lease])]
                submitted = link(got.context, success=[got.messages[0].offset], token=TOKEN)
                for method, asked in (
                    ("settle", consumer.AckRequest(group, acks, token=TOKEN)),
                    ("pull", our_pull(group, acks=acks, token=TOKEN)),
                    ("submit", submitted),
                ):
                    refused = await ask(client, method, [asked])
                    assert isinstance(refused, consumer.PullException), (method, group)
                    assert refused.code == 403
                    assert "new may not pull" in refused.message
            assert gateway.events("ack_ok") == []


async def test_no_client_sends_to_internal_topics(tmp_path: Path) -> None:
    """A forged ownership record could make a group skip unhandled messages."""
    own = ownership_topic(Group(GROUP), Topic(TOPIC))
    names = (own, parked_topic(Group(GROUP), Topic(TOPIC)), AUDIT_TOPIC, f"%DLQ%{GROUP}")
    may = [{"principals": ["new"], "may": ["produce"], "topics": [each]} for each in ("*", "%*")]
    async with run_gateway(tmp_path) as gateway:
        await gateway.client.create_topic(own, queues=1)
        for rules in ([], may[:1], may):
            async with client_of(gateway, tokens=TOKENS, access=rules) as client:
                for name in names:
                    message = producer.Message(topic=name, body=b"{}", token=TOKEN)
                    later = producer.DelayMessage(
                        topic=name, action=1, timestamp=1, body=b"{}", token=TOKEN
                    )
                    for method, *arguments in (
                        ("sendSync", message, 1000),
                        ("sendAsync", message),
                        ("sendBatchSync", [message]),
                        (
                            "sendEncoded",
                            producer.EncodedBatch(name, None, 1, ENCODED, token=TOKEN),
                        ),
                        ("sendDelaySync", later, 1000),
                    ):
                        answer = await ask(client, method, arguments)
                        assert answer.code == (71 if rules == may[:1] else 11), (method, name)
        (queue,) = await gateway.client.queues(own)
        assert await gateway.client.max_offset(queue) == 0


async def test_a_rule_for_a_broadcast_group_is_one_for_its_clients(tmp_path: Path) -> None:
    """A client's leases belong to its own group, whose name is in no rule."""
    groups = [{"name": GROUP, "mode": "broadcast", "topics": [{"name": TOPIC}]}]
    async with run_gateway(tmp_path) as gateway:
        await gateway.send(["k"])
        async with client_of(gateway, groups=groups, **RULED) as client:
            got = consumer.PullResponse(messages=[])
            while not got.messages:
                got = await client.pull(GROUP, token=TOKEN, clientId="a", linger_ms=500)
            acks = [consumer.AckBatch(got.context, acked=[got.messages[0].leaseId])]
            assert got.context.groupId != GROUP
            asked = consumer.AckRequest(GROUP, acks, clientId="a", token=TOKEN)
            assert (await client.call("settle", asked)).notHeld == []
            asked.token = OLD_TOKEN
            refused = await ask(client, "settle", [asked])
            assert refused.code == 403


async def test_a_client_certificate_authenticates(
    tmp_path: Path, certificates: Certificates
) -> None:
    name = certificates.client_name
    known = {
        "certificates": [{"name": "billing", "common_name": name}],
        "access": [{"principals": ["billing"], "may": ["pull"]}],
        **tls_of(certificates, client_ca=True),
    }
    async with (
        run_gateway(tmp_path) as gateway,
        client_of(gateway, tls=certificates.client_context(own=True), **known) as client,
    ):
        assert (await client.pull(GROUP)).messages == []
        answer = await client.call("sendSync", producer.Message(topic=TOPIC, body=b"x"), 1000)
        assert answer.code == 71
        assert "billing may not produce" in answer.msg


async def test_an_unknown_certificate_needs_a_token(
    tmp_path: Path, certificates: Certificates
) -> None:
    known = {
        "certificates": [{"name": "billing", "common_name": "somebody else"}],
        "tokens": TOKENS,
        **tls_of(certificates, client_ca=True),
    }
    async with (
        run_gateway(tmp_path) as gateway,
        client_of(gateway, tls=certificates.client_context(own=True), **known) as client,
    ):
        with pytest.raises(consumer.PullException, match="requires a token") as refused:
            await client.pull(GROUP)
        assert refused.value.code == 401
        assert (await client.pull(GROUP, token=TOKEN)).messages == []
