"""Calls with absent arguments at the gate."""

from __future__ import annotations

from typing import Any

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


def requests(topic: str) -> list[tuple[str, Any]]:
    """Return calls that send to *topic*, without a timeout."""
    return [
        ("sendSync", producer.Message(topic=topic)),
        ("sendDelaySync", producer.DelayMessage(topic=topic, action=1)),
    ]


@pytest.mark.parametrize("number", range(2))
def test_a_send_without_its_timeout_is_authorized_by_its_topic(number: int) -> None:
    gate = Gate(Principals(SETTINGS), topics_of=lambda _group: [])
    method, message = requests("orders")[number]
    gate.check(method, structs(method)[0](message), certificate="ops.test")
    _, other = requests("salaries")[number]
    with pytest.raises(Forbidden, match="ops may not produce 'salaries'"):
        gate.check(method, structs(method)[0](other), certificate="ops.test")
