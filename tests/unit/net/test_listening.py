"""The ports for clients, of which one may be taken while an operator has the proxy drained."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.errors import OrderlaneError
from proxy.listening import Listening
from proxy.settings.proxy_settings import ListenSettings


class Thrift:
    """Both servers: it listens on any port once, except on those that are *taken*."""

    def __init__(self) -> None:
        self.ports: set[int] = set()
        self.taken: set[int] = set()

    async def listen(self, _host: str, port: int, **_others: Any) -> int:
        if port in self.ports | self.taken:
            raise OSError(98, "Address already in use")
        self.ports.add(port)
        return port

    def stop_listening(self) -> None:
        self.ports.clear()


async def test_where_one_port_is_taken_it_listens_on_none_and_can_try_again() -> None:
    thrift: Any = Thrift()
    settings = ListenSettings.model_validate(
        {"thrift": "127.0.0.1:9713", "http": "127.0.0.1:9714", "producer": "127.0.0.1:9715"}
    )
    http: Any = Thrift()
    listening = Listening(settings, thrift)
    await listening.open(http)
    thrift.stop_listening()
    thrift.taken = {9715}
    with pytest.raises(OrderlaneError, match=r"listen\.producer: cannot listen on 127.0.0.1:9715"):
        await listening.open_client_ports()
    assert thrift.ports == set(), "clients would connect to a proxy that serves none"
    thrift.taken = set()
    await listening.open_client_ports()
    assert thrift.ports == {9713, 9715}
