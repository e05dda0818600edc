"""The HTTP port of an embedded broker: /healthz, /readyz and /metrics.

Guarded as the proxy's: on loopback only under a local host name. Its answers contain figures alone,
no names of topics or groups, and need no token.
"""

from __future__ import annotations

from aiohttp import web

from broker_core.broker import Broker
from proxy.admin.guard import Guard, is_loopback
from proxy.admin.http_connections import HttpConnections
from proxy.admin.http_listener import HttpListener, runner_of
from proxy.admin.metric_families import Scrape
from proxy.admin.operations import TEXT, Call, get
from proxy.admin.routes import application
from proxy.downstream.port.load import Load
from proxy.embedded.broker_collector import BrokerCollector
from proxy.net.principals import Principals
from proxy.settings.proxy_settings import LimitSettings, Settings
from proxy.settings.types import at_port, host_port


class BrokerHttp:
    """The port at *address* of *broker*, whose name is *name*.

    It may listen before the broker opens: until then the broker is not ready.
    """

    def __init__(self, broker: Broker, *, name: str, address: str) -> None:
        self._broker = broker
        self._address = address
        self._scrape = Scrape(BrokerCollector(name, broker.figures))
        limits = LimitSettings()
        connections = HttpConnections(limits, Load(limits.max_inflight_bytes))
        served = application(
            [
                get("/healthz", "Report that the process answers.", self._healthz, media=TEXT),
                get(
                    "/readyz",
                    "Report whether the broker can serve clients.",
                    self._readyz,
                    media=TEXT,
                    errors=(503,),
                ),
                get("/metrics", "Return metrics for Prometheus.", self._metrics, media=TEXT),
            ],
            Guard(Principals(Settings()), loopback=is_loopback(address)),
            body_within_s=connections.patience_s,
            see="/metrics",
        )
        self._listener = HttpListener(runner_of(served, connections), connections)

    async def listen(self) -> str:
        """Listen and return the address, host:port. Raises OSError."""
        host, port = host_port(self._address)
        return at_port(self._address, await self._listener.listen(host, port))

    async def close(self) -> None:
        """Stop listening."""
        await self._listener.close()

    async def _healthz(self, _call: Call) -> str:
        return "ok\n"

    async def _readyz(self, _call: Call) -> web.Response:
        reason = self._broker.not_ready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"not ready: {reason}\n")

    async def _metrics(self, _call: Call) -> web.Response:
        return await self._scrape.response()
