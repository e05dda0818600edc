"""``orderlane up``, ``nameserver``, ``broker``, ``proxy``: the processes that serve.

Each prints one line of JSON when it is ready. SIGTERM drains, a second one stops at once.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from broker_core.broker.server import Broker
from broker_core.broker.settings import BrokerSettings
from broker_core.nameserver.server import NameServer
from proxy.app import Proxy
from proxy.cli.options import DataOption, HistoryOption, SettingsOption
from proxy.cli.output import print_json
from proxy.cli.serving import open_history, serve
from proxy.errors import OrderlaneError, SettingsError
from proxy.settings import Settings, host_port, load_settings
from proxy.settings_source import Layers, explain

DEFAULT_DATA = Path("orderlane-data")

Closing = Callable[[], Awaitable[None]]
Flush = Annotated[
    str | None, typer.Option("--flush", help="sync: OK means on disk (default); async: soon after")
]
BrokerSettingsOption = Annotated[
    Path | None,
    typer.Option("--broker-settings", help="settings file of the embedded broker", dir_okay=False),
]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes any free one")]


def up(
    data: DataOption = DEFAULT_DATA,
    settings: SettingsOption = None,
    broker_settings: BrokerSettingsOption = None,
    flush: Flush = None,
    thrift_port: Port = None,
    http_port: Port = None,
    nameserver_port: Port = 9876,
    broker_port: Port = 10911,
    history: HistoryOption = None,
) -> None:
    """Run nameserver, broker and proxy in one process, in the foreground.

    Unknown topics and groups are created, unless the settings say otherwise.
    """
    proxy_settings = load_settings(
        settings, _ports({"listen.thrift": thrift_port, "listen.http": http_port}, settings)
    )
    if "auto_create_groups" not in proxy_settings.model_fields_set:
        proxy_settings = proxy_settings.model_copy(update={"auto_create_groups": True})
    overrides = _given(
        data=str(data),
        flush=flush,
        listen=None if broker_port is None else f"127.0.0.1:{broker_port}",
    )
    embedded = load_broker_settings(broker_settings, overrides)
    if "auto_create_topics" not in embedded.model_fields_set:
        embedded = embedded.model_copy(update={"auto_create_topics": True})
    serve(lambda: _up(proxy_settings, embedded, nameserver_port or 0, history))


async def _up(
    settings: Settings, embedded: BrokerSettings, nameserver_port: int, history: Path | None
) -> Closing:
    async with AsyncExitStack() as started:
        nameserver = await _start_nameserver(f"127.0.0.1:{nameserver_port}", started)
        broker = await _start_broker(
            embedded.model_copy(update={"nameserver": (nameserver.address,)}), started
        )
        settings = settings.model_copy(update={"nameserver": (nameserver.address,)})
        parts = ("nameserver", "broker", "proxy")
        proxy = Proxy(settings, history=open_history(history, "up", parts=parts))
        started.push_async_callback(proxy.close)
        addresses = await proxy.start()
        print_json(
            {
                "ready": True,
                "thrift": addresses.thrift,
                "http": addresses.http,
                "nameserver": nameserver.address,
                "broker": broker.address,
            }
        )
        return started.pop_all().aclose
    raise AssertionError("unreachable")


def nameserver(
    listen: Annotated[str, typer.Option(help="host:port")] = "127.0.0.1:9876",
    history: HistoryOption = None,
) -> None:
    """Run a nameserver."""

    async def start() -> Closing:
        async with AsyncExitStack() as started:
            writer = open_history(history, "nameserver", parts=("nameserver",))
            started.callback(writer.close)
            server = await _start_nameserver(listen, started)
            print_json({"ready": True, "nameserver": server.address})
            return started.pop_all().aclose
        raise AssertionError("unreachable")

    serve(start)


def broker(
    data: Annotated[Path | None, typer.Option(help="folder of the data")] = None,
    settings: BrokerSettingsOption = None,
    listen: Annotated[str | None, typer.Option(help="host:port")] = None,
    nameserver: Annotated[str | None, typer.Option(help="host:port, several by commas")] = None,
    flush: Flush = None,
    history: HistoryOption = None,
) -> None:
    """Run an embedded broker."""
    overrides = _given(
        data=None if data is None else str(data), listen=listen, nameserver=nameserver, flush=flush
    )
    embedded = load_broker_settings(settings, {"data": str(DEFAULT_DATA), **overrides})

    async def start() -> Closing:
        async with AsyncExitStack() as started:
            writer = open_history(history, "broker", parts=("broker",))
            started.callback(writer.close)
            server = await _start_broker(embedded, started)
            print_json({"ready": True, "broker": server.address})
            return started.pop_all().aclose
        raise AssertionError("unreachable")

    serve(start)


def proxy(
    settings: SettingsOption = None,
    nameserver: Annotated[str | None, typer.Option(help="host:port, several by commas")] = None,
    thrift_port: Port = None,
    http_port: Port = None,
    history: HistoryOption = None,
) -> None:
    """Run a consumer proxy."""
    overrides = _ports({"listen.thrift": thrift_port, "listen.http": http_port}, settings)
    if nameserver is not None:
        overrides["nameserver"] = nameserver
    loaded = load_settings(settings, overrides)

    async def start() -> Closing:
        async with AsyncExitStack() as started:
            server = Proxy(loaded, history=open_history(history, "proxy", parts=("proxy",)))
            started.push_async_callback(server.close)
            addresses = await server.start()
            print_json({"ready": True, "thrift": addresses.thrift, "http": addresses.http})
            return started.pop_all().aclose
        raise AssertionError("unreachable")

    serve(start)


def load_broker_settings(path: Path | None, overrides: dict[str, Any]) -> BrokerSettings:
    """Settings of the embedded broker. Raises SettingsError with one sentence a problem."""
    layers = Layers.read(path, {}, overrides, known=BrokerSettings.model_fields)
    try:
        return BrokerSettings.model_validate(layers.merged)
    except ValidationError as error:
        raise SettingsError("\n".join(explain(error, layers, BrokerSettings))) from None


async def _start_nameserver(address: str, started: AsyncExitStack) -> NameServer:
    host, port = host_port(address)
    server = NameServer(host, port)
    await _listening("nameserver", address, server.start)
    started.push_async_callback(server.close)
    return server


async def _start_broker(settings: BrokerSettings, started: AsyncExitStack) -> Broker:
    server = Broker(settings)
    await _listening("broker", settings.listen, server.start)
    started.push_async_callback(server.close)
    return server


async def _listening(
    what: str, address: str, start: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    try:
        await start()
    except OSError as error:
        if error.errno is None or "address" not in os.strerror(error.errno).lower():
            raise OrderlaneError(f"{what}: {error}") from None
        raise OrderlaneError(
            f"{what}: cannot listen on {address}: {os.strerror(error.errno)};"
            " choose another port, or 0 for any free one"
        ) from None


def _ports(ports: dict[str, int | None], settings: Path | None) -> dict[str, Any]:
    """Overrides for the ports that were given: the host stays what the settings say."""
    configured = load_settings(settings).listen
    overrides = {}
    for name, port in ports.items():
        if port is not None:
            host, _ = host_port(getattr(configured, name.rpartition(".")[2]))
            overrides[name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return overrides


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
