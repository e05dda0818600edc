"""Calls with absent arguments at the gate."""

from __future__ import annotations

import pytest

from proxy.downstream.port.gate import Gate
from proxy.errors import Forbidden
from proxy.net.principals import Principals
from proxy.settings.proxy_settings import Settings
from testkit.thrift_client import structs
from thrift_idl import producer

SETTINGS = Settings.model_validate(
    {
        "certificates": [{"name": "ops", "common_name": "ops.test"}],
        "listen": {"tls": {"certificate": "c", "key": "k", "client_ca": "a"}},
        "access": [{"principals": ["ops"], "may": ["produce"], "topics": ["orders"]}],
    }
)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("sendSync", producer.Message(topic="orders")),
        ("sendDelaySync", producer.DelayMessage(topic="orders", action=1)),
    ],
)
def test_a_send_without_its_timeout_is_authorized_by_its_topic(
    method: str, message: producer.Message | producer.DelayMessage
) -> None:
    gate = Gate(Principals(SETTINGS), topics_of=lambda _group: [])
    gate.check(method, structs(method)[0](message), certificate="ops.test")
    message.topic = "salaries"
    with pytest.raises(Forbidden, match="ops may not produce 'salaries'"):
        gate.check(method, structs(method)[0](message), certificate="ops.test")
