"""The listening ports of a proxy and their certificates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from broker_core.clock import wall_ms
from broker_core.errors import reason_of
from broker_core.tls import LiveContext, follow
from proxy.admin.http import AdminHttp
from proxy.downstream.port.server import ThriftServer
from proxy.errors import OrderlaneError
from proxy.net.counted_tls import ContextOf
from proxy.net.tls import port_context
from proxy.settings.proxy_settings import ListenSettings
from proxy.settings.types import at_port, host_port

#: Listens on host and port; returns the port.
_Listen = Callable[[str, int], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Listening addresses of a running proxy, as host:port."""

    thrift: str
    http: str
    producer: str | None = None


class Listening:
    """Opens the ports of *settings*. Raises OrderlaneError if a certificate is not available."""

    def __init__(self, settings: ListenSettings, thrift: ThriftServer) -> None:
        self._settings = settings
        self._thrift = thrift
        self._client_addresses: dict[str, str] = {}  # client addresses, by setting
        self._tls: dict[str, LiveContext] = {}

    async def open(self, admin: AdminHttp) -> Addresses:
        """Listen, including *admin*. Raises OrderlaneError if a port or certificate is not
        available.
        """
        listen = self._settings
        for setting, files in (("listen.tls", listen.tls), ("listen.http_tls", listen.http_tls)):
            if files is not None:
                # The HTTP port accepts connections without a certificate, as probes have none.
                optional = setting == "listen.http_tls"
                self._tls[setting] = port_context(files, setting, optional=optional)
        if (clients := self._tls.get("listen.tls")) is not None:
            clients.watch(self._thrift.open.values)
            self._thrift.check_certificates(clients.is_revoked)
        if (operators := self._tls.get("listen.http_tls")) is not None:
            operators.watch(admin.tls_connections)
            admin.check_certificates(operators.is_revoked)
        self._client_addresses = {"listen.thrift": listen.thrift}
        if listen.producer is not None:
            self._client_addresses["listen.producer"] = listen.producer
        await self.open_client_ports()
        on_http = partial(admin.listen, tls=self._context("listen.http_tls"))
        http = await self._listen("listen.http", listen.http, on_http)
        return Addresses(
            self._client_addresses["listen.thrift"],
            http,
            self._client_addresses.get("listen.producer"),
        )

    async def open_client_ports(self) -> None:
        """Listen for clients; on the same ports as before when reopened. Raises OrderlaneError if
        one is not available; then it listens on none, so that it can be called again.
        """
        on_thrift = partial(self._thrift.listen, tls=self._context("listen.tls"))
        try:
            for setting, address in self._client_addresses.items():
                self._client_addresses[setting] = await self._listen(setting, address, on_thrift)
        except OrderlaneError:
            self._thrift.stop_listening()
            raise

    def revocations_end_in_s(self) -> dict[str, float]:
        """Return the seconds until the revocation lists of each port end, by setting."""
        ends = {name: each.revocations for name, each in self._tls.items()}
        return {
            name: lists.ends_s - wall_ms() / 1000
            for name, lists in ends.items()
            if lists is not None and lists.ends_s is not None
        }

    async def follow_certificates(self) -> None:
        """Reload certificates for new connections when their files change; runs until cancelled."""
        await follow(self._tls.values())

    def _context(self, setting: str) -> ContextOf | None:
        tls = self._tls.get(setting)
        return None if tls is None else tls.newest

    async def _listen(self, setting: str, address: str, listen: _Listen) -> str:
        host, port = host_port(address)
        try:
            port = await listen(host, port)
        except OSError as error:
            raise OrderlaneError(
                f"{setting}: cannot listen on {address}: {reason_of(error)};"
                " choose another port, or 0 for any free one"
            ) from None
        return at_port(address, port)
