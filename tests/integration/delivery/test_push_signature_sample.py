"""The receiver example in docs/http-push.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.clock import wall_ms
from proxy.core.delivery.push_answer import AnswerRules
from proxy.core.delivery.push_request import Format, PushRules, request_of, signature
from proxy.core.delivery.push_url import parse_url
from proxy.core.delivery.receiver_address import ReceiverAddresses
from proxy.core.delivery.secret import Bound
from proxy.delivery.deliverer import ACKED
from proxy.delivery.sinks.push import HttpPush
from tests.integration.delivery.receiver import running_receiver
from tests.support.pushed_messages import PushedMessage
from tools.tables import ROOT

SECRET = b"whsec"


@pytest.fixture
def is_genuine() -> Callable[..., bool]:
    text = (ROOT / "docs/http-push.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    names: dict[str, Any] = {}
    exec(code, names)
    sample: Callable[..., bool] = names["is_genuine"]
    return sample


@pytest.mark.sockets
async def test_it_accepts_pushes_by_post_and_by_get(
    is_genuine: Callable[..., bool],
) -> None:
    async with running_receiver() as receiver:
        url = parse_url(receiver.url + "?tenant=7")
        for method, form in (("POST", Format.JSON), ("POST", Format.FORM), ("GET", Format.FORM)):
            rules = PushRules(
                [url], method=method, format=form, secrets=[Bound(b"old"), Bound(SECRET)]
            )
            push = HttpPush(
                rules,
                AnswerRules(),
                addresses=ReceiverAddresses(listed={"127.0.0.1"}),
                timeout_s=30,
                concurrency=1,
            )
            message = PushedMessage(body="ü&=".encode())
            assert await push.deliver(message) == ACKED  # type: ignore[arg-type]
            await push.close()
        for received in receiver.received:
            assert is_genuine(
                SECRET,
                signature=received.headers["Orderlane-Signature"],
                message_id=received.message_id,
                content=received.body or received.query.encode(),
            )


def test_it_believes_nothing_else(is_genuine: Callable[..., bool]) -> None:
    rules = PushRules([parse_url("http://receiver/")], secrets=[Bound(SECRET)])
    request = request_of(rules, PushedMessage(), rules.urls[0], at_s=wall_ms() // 1000)
    good = {
        "signature": request.headers["Orderlane-Signature"],
        "message_id": request.headers["Orderlane-Message-Id"],
        "content": request.body,
    }
    assert is_genuine(SECRET, **good)

    old = signature([SECRET], at_s=wall_ms() // 1000 - 600, message_id="AC1100", content=b"")
    assert not is_genuine(b"other", **good)
    assert not is_genuine(SECRET, **{**good, "content": b"{}"})
    assert not is_genuine(SECRET, **{**good, "message_id": "other"})
    assert not is_genuine(SECRET, signature=old, message_id="AC1100", content=b"")
    for text in ("", "t=,v1=", "v1=ü", "t=1", "=,="):
        assert not is_genuine(SECRET, **{**good, "signature": text})
