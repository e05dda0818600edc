"""Principals with a token that try to get more than their rules grant."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, Topic
from proxy.core.access.audit_record import AUDIT_TOPIC
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from testkit.thrift_client import ThriftClient, link, our_pull
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, token_settings
from thrift_idl import consumer, producer

_MS = 30_000
#: Long enough for any list of names or pattern to show its cost.
_LONG = "%x" * 1_000_000


async def _code(client: ThriftClient, method: str, *arguments: Any) -> int:
    """Return the code of a refusal or of a send; 0 for an answer."""
    try:
        return int(getattr(await client.call(method, *arguments), "code", 0) or 0)
    except consumer.PullException as error:
        return int(error.code)


def _rule(principal: str, *may: str, **limits: list[str]) -> dict[str, Any]:
    return {"principals": [principal], "may": list(may), **limits}


async def _pulled(client: ThriftClient, group: str, token: str) -> Any:
    """Return the first answer with messages."""
    async with asyncio.timeout(_MS / 1000):
        while not (got := await client.pull(group, token=token, linger_ms=500)).messages:
            pass
    return got


@attack(
    "acking another group's leases, under either name",
    also=("a group whose name begins like an allowed one",),
    answer="403, nothing is settled",
)
async def others_leases(at: Installation) -> str:
    groups = [{"name": name, "topics": [{"name": TOPIC}]} for name in (GROUP, "other", "other2")]
    rules = [
        _rule("mine", "pull", groups=[GROUP]),
        _rule("theirs", "pull", "produce", groups=["other"]),
    ]
    at.start_all(settings={"groups": groups, **token_settings("mine", "theirs", rules=rules)})
    client = await at.connect()
    assert (
        await _code(client, "sendSync", producer.Message(TOPIC, body=b"x", token="theirs"), _MS)
        == 0
    )
    got = await _pulled(client, "other", "theirs")
    acks = [consumer.AckBatch(got.context, acked=[got.messages[0].leaseId])]
    codes = []
    for group in (GROUP, "other"):
        submitted = link(got.context, success=[got.messages[0].offset], token="mine")
        codes += [
            await _code(client, "settle", consumer.AckRequest(group, acks, token="mine")),
            await _code(client, "pull", our_pull(group, acks=acks, token="mine")),
            await _code(client, "submit", submitted),
        ]
    codes.append(await _code(client, "pull", our_pull("other2", token="theirs")))
    assert set(codes) == {403}, codes
    settled = await client.call("settle", consumer.AckRequest("other", acks, token="theirs"))
    assert settled.notHeld == [], "the lease was settled by the attack"
    client.abort()
    return f"{len(codes)} of {len(codes)} attempts refused; the lease still belongs to its group"


@attack("topics of one rule with groups of another", answer="403: one rule has to allow both")
async def rules_do_not_mix(at: Installation) -> str:
    groups = [
        {"name": name, "topics": [{"name": topic} for topic in (TOPIC, "payments")]}
        for name in (GROUP, "other")
    ]
    rules = [
        _rule("mine", "pull", groups=[GROUP], topics=[TOPIC]),
        _rule("mine", "pull", groups=["other"], topics=["payments"]),
    ]
    at.start_all(settings={"groups": groups, **token_settings("mine", rules=rules)})
    client = await at.connect()
    allowed, refused = (
        [(GROUP, TOPIC), ("other", "payments")],
        [(GROUP, "payments"), ("other", TOPIC)],
    )
    for group, topic in allowed:
        assert await _code(client, "pull", our_pull(group, topic=topic, token="mine")) == 0
    for group, topic in refused:
        assert await _code(client, "pull", our_pull(group, topic=topic, token="mine")) == 403
    client.abort()
    return "2 of 2 mixtures refused, 2 of 2 pairs served"


@attack(
    "a producer forges records in the gateway's own topics",
    answer="the send is refused, whatever its rule",
)
async def forged_records(at: Installation) -> str:
    own = ownership_topic(Group(GROUP), Topic(TOPIC))
    names = (own, parked_topic(Group(GROUP), Topic(TOPIC)), AUDIT_TOPIC, f"%DLQ%{GROUP}")
    rules = [
        _rule("any", "produce", topics=["*"]),
        _rule("percent", "produce", topics=["%*"]),
    ]
    at.start_all(settings=token_settings("any", "percent", rules=rules))
    client = await at.connect()
    codes = []
    for token in ("any", "percent"):
        for name in names:
            sent = producer.Message(topic=name, body=b"{}", token=token)
            later = producer.DelayMessage(
                topic=name, action=1, timestamp=1, body=b"{}", token=token
            )
            codes += [
                await _code(client, "sendSync", sent, _MS),
                await _code(client, "sendAsync", sent),
                await _code(client, "sendBatchSync", [sent]),
                await _code(
                    client, "sendEncoded", producer.EncodedBatch(name, None, 1, b"", token=token)
                ),
                await _code(client, "sendDelaySync", later, _MS),
                await _code(
                    client, "prepareTransaction", producer.PrepareRequest(sent, "tx", token=token)
                ),
                await _code(
                    client, "transactionChecks", producer.ChecksRequest("tx", [name], 0, token)
                ),
                await _code(client, "writableQueues", producer.QueuesRequest(name, token)),
            ]
    assert set(codes) <= {11, 71}, codes
    client.abort()
    return f"{len(codes)} of {len(codes)} sends refused"


@attack(
    "reading those under a rule for any topic",
    answer="403: a rule has to name them including their %",
)
async def internal_topics(at: Installation) -> str:
    dead = f"%DLQ%{GROUP}"
    groups = [
        {"name": "reader", "topics": [{"name": TOPIC}, {"name": dead}]},
        {"name": GROUP, "topics": [{"name": TOPIC}]},
    ]
    rules = [_rule("any", "pull", topics=["*"]), _rule("percent", "pull", topics=["%*", "*"])]
    at.start_all(settings={"groups": groups, **token_settings("any", "percent", rules=rules)})
    client = await at.connect()
    asked = [
        our_pull("reader", topic=dead, token="any"),
        our_pull("reader", topics=[TOPIC, dead], token="any"),
        our_pull("reader", token="any"),  # all topics of the group
        our_pull("reader", topic="", token="any"),
        our_pull("reader", topics=[""], token="any"),
    ]
    codes = [await _code(client, "pull", each) for each in asked]
    assert all(code in (400, 403, 404) for code in codes), codes
    assert await _code(client, "pull", our_pull("reader", topic=dead, token="percent")) == 0
    client.abort()
    return f"{len(codes)} of {len(codes)} ways refused"


@attack(
    "names of megabytes, to slow patterns or fill memory",
    answer="refused by length in milliseconds, and not stored",
)
async def long_names(at: Installation) -> str:
    rules = [_rule("t", "pull", "produce", topics=["*x*x*x*y"])]
    at.start_all(settings=token_settings("t", rules=rules))
    client = await at.connect()
    loop = asyncio.get_running_loop()
    began = loop.time()
    batch = consumer.AckBatch(consumer.Context(groupId=_LONG, topic=TOPIC))
    codes = [
        await _code(client, "pull", our_pull(_LONG, topic=TOPIC, token="t")),
        await _code(client, "pull", our_pull(GROUP, topics=["t"] * 5_000, token="t")),
        await _code(client, "settle", consumer.AckRequest(GROUP, [batch], token="t")),
        await _code(client, "sendSync", producer.Message(topic=_LONG, body=b"x", token="t"), _MS),
    ]
    took_ms = (loop.time() - began) * 1000
    assert set(codes) <= {400, 403, 71}, codes
    client.abort()
    return f"{len(codes)} of {len(codes)} refused, in {took_ms:.0f} ms together"


@attack("`../` in names of topics and groups", answer="refused because of their characters")
async def names_as_paths(at: Installation) -> str:
    at.start_all(settings={"auto_create_groups": True})
    names = ("../x", "..", "/etc/passwd", "a/../../b", "a\\b", "a\0b", "%OWN%../x", ".")
    thin = await at.connect()
    broker = BrokerClient(
        nameservers=[at.nameserver], client_id="x@1#1", request_timeout_s=_MS / 1000
    )
    served = []
    for name in names:
        codes = [
            await _code(thin, "pull", our_pull(name, topic=TOPIC)),
            await _code(thin, "pull", our_pull("g", topic=name)),
            await _code(thin, "sendSync", producer.Message(topic=name, body=b"x"), _MS),
        ]
        served += [name for code in codes if code == 0]
        try:
            await broker.create_topic(Topic(name), queues=1)
        except RemotingError:
            continue
        served.append(name)
    thin.abort()
    await broker.close()
    assert not served, served
    assert not [path for path in at.folder.rglob("*") if path.name in {"x", "passwd", "b"}]
    return f"{4 * len(names)} of {4 * len(names)} requests refused, no file created"
