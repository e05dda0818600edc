"""Nameserver, broker and proxy as context managers that yield their addresses for the ready line.

Imported on demand by server verbs, because broker and HTTP server double the start time of others.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client.registry import Collector
from pydantic import ValidationError

from broker_core.broker import Broker, BrokerSettings
from broker_core.errors import TlsError, reason_of
from broker_core.nameserver.server import NameServer
from broker_core.store.data_folder import NAMESERVER
from broker_core.tls_settings import ServerTls
from proxy.app import Proxy
from proxy.cli.connect import checked_address
from proxy.cli.worker_processes import Wanted, running_workers
from proxy.embedded.broker_collector import BrokerCollector
from proxy.embedded.broker_http import BrokerHttp
from proxy.errors import OrderlaneError, SettingsError
from proxy.history.record import History
from proxy.live.settings_file import SettingsFile
from proxy.settings.proxy_settings import Settings
from proxy.settings.source import BROKER_PREFIX, Layers, explain

Addresses = dict[str, str]


def load_broker_settings(
    path: Path | None, options: dict[str, Any], *, data: Path
) -> BrokerSettings:
    """Load the settings of the embedded broker.

    *options* (None: not given) override the environment, which overrides the file *path*. *data* is
    the default folder. Raises SettingsError with one sentence per problem.
    """
    given = {name: value for name, value in options.items() if value is not None}
    layers = Layers.read(
        path, os.environ, given, known=BrokerSettings.model_fields, prefix=BROKER_PREFIX
    )
    layers.merged.setdefault("data", str(data))
    try:
        return BrokerSettings.model_validate(layers.merged)
    except ValidationError as error:
        raise SettingsError("\n".join(explain(error, layers, BrokerSettings))) from None


def server_tls(**options: Path | str | None) -> ServerTls | None:
    """Return the TLS settings of a nameserver, None without options. Raises OrderlaneError."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    if not given:
        return None
    try:
        return ServerTls.model_validate(given)
    except ValidationError as error:
        named = [str((each["loc"] or ("crl_file",))[0]) for each in error.errors()]
        wrong = {f"--tls-{name.replace('_', '-')}" for name in named}
        raise OrderlaneError(
            f"{', '.join(sorted(wrong))}: TLS needs --tls-certificate and --tls-key;"
            " --tls-mode is enforcing, permissive or disabled; --tls-crl-file needs --tls-client-ca"
        ) from None


@asynccontextmanager
async def running_nameserver(
    address: str,
    *,
    data: Path | None = None,
    tls: ServerTls | None = None,
    acl: Path | None = None,
) -> AsyncIterator[Addresses]:
    """Run a nameserver at *address* that keeps its values in the folder *data* and allows changes
    to the administrators of the file *acl*, to all clients without it.

    Raises OrderlaneError if the address or a file of *tls* cannot be used, and StoreError if the
    values or accounts cannot be read.
    """
    try:
        server = NameServer(*checked_address(address), data=data, tls=tls, acl=acl)
        await server.start()
    except TlsError as error:
        raise OrderlaneError(f"nameserver: {error}") from None
    except OSError as error:
        raise _cannot_listen("nameserver", error) from None
    try:
        yield {"nameserver": server.address}
    finally:
        await server.close()


@asynccontextmanager
async def running_broker(settings: BrokerSettings) -> AsyncIterator[Addresses]:
    """Run a broker. Raises OrderlaneError or StoreError if it cannot start."""
    async with _running(Broker(settings), settings) as addresses:
        yield addresses


@asynccontextmanager
async def _running(server: Broker, settings: BrokerSettings) -> AsyncIterator[Addresses]:
    """Run *server* with *settings*, and before it the HTTP port, which probes ask meanwhile."""
    if settings.http is None:
        async with _running_alone(server) as addresses:
            yield addresses
        return
    port = BrokerHttp(server, name=settings.broker_name, address=settings.http)
    try:
        try:
            at = await port.listen()
        except OSError as error:
            raise OrderlaneError(
                f"broker: cannot listen on {settings.http}, its setting http: {reason_of(error)}"
            ) from None
        async with _running_alone(server) as addresses:
            yield {**addresses, "broker_http": at}
    finally:
        await port.close()


@asynccontextmanager
async def _running_alone(server: Broker) -> AsyncIterator[Addresses]:
    try:
        await server.start()
    except TlsError as error:
        raise OrderlaneError(f"broker: {error}") from None
    except OSError as error:
        if error.filename is not None:
            raise OrderlaneError(f"cannot use {error.filename}: {error.strerror}") from None
        raise _cannot_listen("broker", error) from None
    try:
        yield {"broker": server.address}
    finally:
        await server.close()


@asynccontextmanager
async def running_proxy(
    settings: Settings,
    history: History,
    *,
    file: SettingsFile | None = None,
    collectors: Sequence[Collector] = (),
) -> AsyncIterator[Addresses]:
    """Run a proxy, which closes *history* at its end; SIGHUP reloads *file*, and its /metrics
    contains *collectors*.

    Raises OrderlaneError if it cannot listen.
    """
    server = Proxy(settings, history=history, file=file, collectors=collectors)
    try:
        addresses = await server.start()
        if file is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
        yield {"thrift": addresses.thrift, "http": addresses.http}
    finally:
        await server.close()


@asynccontextmanager
async def running_all(
    settings: Settings,
    embedded: BrokerSettings,
    history: History,
    *,
    nameserver: str,
    file: SettingsFile | None = None,
) -> AsyncIterator[Addresses]:
    """Run a nameserver at the address *nameserver*, and a broker and a proxy that use it.

    The proxy's /metrics contains the broker's.
    """
    async with _running_nameserver_of(settings, embedded, nameserver) as at:
        use = {"nameserver": (at["nameserver"],)}
        embedded = embedded.model_copy(update=use)
        server = Broker(embedded)
        figures = BrokerCollector(embedded.broker_name, server.figures, beside_proxy=True)
        async with (
            _running(server, embedded) as broker,
            running_proxy(
                settings.model_copy(update=use), history, file=file, collectors=[figures]
            ) as proxy,
        ):
            yield {**proxy, **at, **broker}


@asynccontextmanager
async def running_all_with_workers(
    wanted: Wanted, embedded: BrokerSettings, *, nameserver: str
) -> AsyncIterator[dict[str, Any]]:
    """Run nameserver and broker in this process, and workers that use them."""
    async with _running_nameserver_of(wanted.settings, embedded, nameserver) as at:
        use = {"nameserver": (at["nameserver"],)}
        overrides = {**wanted.overrides, "nameserver": at["nameserver"]}
        async with (
            running_broker(embedded.model_copy(update=use)) as broker,
            running_workers(replace(wanted, overrides=overrides)) as workers,
        ):
            yield {**workers, **at, **broker}


def _running_nameserver_of(
    settings: Settings, embedded: BrokerSettings, address: str
) -> AbstractAsyncContextManager[Addresses]:
    """Return a nameserver with the broker's TLS settings and accounts, since proxies connect alike
    to both.
    """
    if embedded.tls is not None and embedded.tls.mode == "enforcing":
        for name, given, whose in (
            ("client_tls", embedded.client_tls, "the broker"),
            ("broker_tls", settings.broker_tls, "the proxy"),
        ):
            if given is None:
                raise OrderlaneError(
                    f"{name} is missing: {whose} needs it to connect with tls.mode enforcing; set"
                    f" at least {name}.ca to the CA of tls.certificate"
                )
    data = embedded.data / NAMESERVER
    return running_nameserver(address, data=data, tls=embedded.tls, acl=embedded.acl)


def _cannot_listen(part: str, error: OSError) -> OrderlaneError:
    return OrderlaneError(f"{part}: {error.strerror}; choose another port, or 0 for any free one")
