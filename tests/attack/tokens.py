"""Calls of the Thrift port without a token, or with one that grants too little."""

from __future__ import annotations

from typing import Any

from testkit.thrift_client import our_pull
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, token_settings
from tests.support.thrift_calls import CONTEXT, MESSAGE
from thrift_idl import consumer, producer

RULES = [{"principals": ["narrow"], "may": ["pull"], "groups": ["other"]}]


def calls(token: str | None) -> dict[str, list[Any]]:
    """Return a call of every method that takes a token."""
    acks = [consumer.AckBatch(CONTEXT, acked=[1])]
    leases = [consumer.LeaseRef(CONTEXT, 1)]
    message = producer.Message(topic=TOPIC, key="k", body=b"b", token=token)
    return {
        "pull": [our_pull(GROUP, token=token)],
        "settle": [consumer.AckRequest(GROUP, acks, token=token)],
        "extend": [consumer.ExtendRequest(GROUP, leases, 100, token=token)],
        "ranges": [consumer.RangesRequest(GROUP, [TOPIC], token=token)],
        "topics": [consumer.TopicsRequest(GROUP, token=token)],
        "report": [consumer.ProgressReport(GROUP, "c", {}, token=token)],
        "getConsumeStats": [consumer.ConsumeStatsRequest(group=GROUP, token=token)],
        "sendSync": [message, 1000],
        "sendBatchSync": [[message, MESSAGE]],
        "sendEncoded": [producer.EncodedBatch(TOPIC, None, 1, b"", token=token)],
    }


async def refusals(at: Installation, token: str | None) -> list[int]:
    """Return the codes with which all calls are refused; AssertionError if one is served."""
    client = await at.connect()
    codes = []
    for method, arguments in calls(token).items():
        try:
            answer = await client.call(method, *arguments)
        except consumer.PullException as error:
            codes.append(error.code)
        else:
            code = getattr(answer, "code", None)
            assert code == 71, f"{method} was served with token {token!r}: {answer}"
            codes.append(code)
    client.abort()
    return codes


@attack(
    "a call without a token, or with a wrong one",
    also=("one message of a batch without a token",),
    answer="401, a send 71",
)
async def without_a_token(at: Installation) -> str:
    at.start_all(settings=token_settings("narrow", rules=RULES))
    codes = [code for token in (None, "", "wrong") for code in await refusals(at, token)]
    assert set(codes) == {401, 71}, codes
    return f"{len(codes)} of {len(codes)} calls refused"


@attack("a known principal exceeds its rights", answer="403, a send 71")
async def beyond_its_rights(at: Installation) -> str:
    at.start_all(settings=token_settings("narrow", rules=RULES))
    codes = await refusals(at, "narrow")
    assert set(codes) == {403, 71}, codes
    return f"{len(codes)} of {len(codes)} calls refused"
