"""``orderlane up``, ``nameserver``, ``broker``, ``proxy``: the server processes.

Each prints one line of JSON when it is ready. SIGTERM drains, a second one stops immediately.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.cli.options import DEFAULT_NAMESERVER, DataOption, HistoryOption, SettingsOption
from proxy.cli.serving import open_history, serve
from proxy.cli.worker_processes import Wanted, running_workers
from proxy.live.settings_file import SettingsFile
from proxy.settings.proxy_settings import MOST_WORKERS, Settings, load_settings
from proxy.settings.types import at_port

DEFAULT_DATA = Path("orderlane-data")

Flush = Annotated[
    str | None,
    typer.Option(
        "--flush",
        help="confirm sends once they are on disk (sync, default) or before (async); environment"
        " ORDERLANE_BROKER__FLUSH",
    ),
]
Role = Annotated[
    str | None,
    typer.Option(
        "--role",
        help="master (default), slave, which copies a master, or elected, by the voters of the"
        " settings; environment ORDERLANE_BROKER__ROLE",
    ),
]
Replication = Annotated[
    str | None,
    typer.Option(
        "--replication",
        help="confirm sends once in_sync_replicas have them (sync) or before (async, default);"
        " environment ORDERLANE_BROKER__REPLICATION",
    ),
]
BrokerSettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--broker-settings",
        help="settings file of the broker (YAML); ORDERLANE_BROKER__… variables override it",
    ),
]
ThriftPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Thrift port, 0 for any free one (default: that of ORDERLANE_LISTEN__THRIFT, 9713)",
    ),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="HTTP port, 0 for any free one (default: that of ORDERLANE_LISTEN__HTTP, 9714)",
    ),
]
NameserverPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="nameserver port, 0 for any free one")
]
BrokerPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="broker port, 0 for any free one (default: that of ORDERLANE_BROKER__LISTEN, 10911)",
    ),
]
BrokerHttpPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="HTTP port with the broker's metrics, 0 for any free one (default: that of"
        " ORDERLANE_BROKER__HTTP, none; without --workers the proxy's /metrics has them)",
    ),
]
BrokerHttpOption = Annotated[
    str | None,
    typer.Option(
        "--http",
        help="address of an HTTP port with metrics and probes, host:port; port 0 for any free one"
        " (default: none; environment ORDERLANE_BROKER__HTTP)",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        max=MOST_WORKERS,
        help="number of worker processes (default: 1; environment ORDERLANE_WORKERS)",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option("--listen", help="address to listen on, host:port; port 0 for any free one"),
]
BrokerListen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        help="address to listen on, host:port; port 0 for any free one (default: 127.0.0.1:10911;"
        " environment ORDERLANE_BROKER__LISTEN)",
    ),
]
BrokerNameservers = Annotated[
    str | None,
    typer.Option(
        "--nameserver",
        help="host:port of the nameserver, comma-separated list; environment"
        " ORDERLANE_BROKER__NAMESERVER",
    ),
]
ProxyNameservers = Annotated[
    str | None,
    typer.Option(
        "--nameserver",
        help="host:port of the nameserver, comma-separated list (default: 127.0.0.1:9876;"
        " environment ORDERLANE_NAMESERVER)",
    ),
]
TlsMode = Annotated[
    str | None,
    typer.Option(
        "--tls-mode",
        help="enforcing (default), permissive (also accepts plain connections) or disabled",
    ),
]
ServerCertificate = Annotated[
    Path | None,
    typer.Option("--tls-certificate", help="use TLS: file with the server's certificate"),
]
ServerKey = Annotated[
    Path | None, typer.Option("--tls-key", help="file with the private key of --tls-certificate")
]
ClientCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-client-ca", help="CA file; clients need a certificate signed by one of these CAs"
    ),
]

Crl = Annotated[
    Path | None,
    typer.Option("--tls-crl-file", help="file with the revocation lists of --tls-client-ca"),
]


def up(
    context: typer.Context,
    data: DataOption = None,
    settings: SettingsOption = None,
    broker_settings: BrokerSettingsOption = None,
    flush: Flush = None,
    thrift_port: ThriftPort = None,
    http_port: HttpPort = None,
    nameserver_port: NameserverPort = 9876,
    broker_port: BrokerPort = None,
    broker_http_port: BrokerHttpPort = None,
    workers: Workers = None,
    history: HistoryOption = None,
) -> None:
    """Run nameserver, broker and proxy in one process, in the foreground.

    Unknown topics and groups are created, unless disabled in the settings. With several workers,
    each is a separate process.
    """
    from proxy.cli.servers import load_broker_settings, running_all, running_all_with_workers

    file, loaded = _load(settings, {})
    loaded = _with_options(loaded, thrift_port, http_port, workers)
    if "auto_create_groups" not in loaded.model_fields_set:
        loaded = loaded.model_copy(update={"auto_create_groups": True})
    embedded = load_broker_settings(
        broker_settings, {"data": data, "flush": flush}, data=DEFAULT_DATA
    )
    changes: dict[str, object] = {"listen": at_port(embedded.listen, broker_port)}
    if broker_http_port is not None:
        changes["http"] = at_port(embedded.http or "127.0.0.1:0", broker_http_port)
    if "auto_create_topics" not in embedded.model_fields_set:
        changes["auto_create_topics"] = True
    embedded = embedded.model_copy(update=changes)
    at = f"127.0.0.1:{nameserver_port or 0}"
    if loaded.workers > 1:
        overrides = {"auto_create_groups": loaded.auto_create_groups}
        wanted = _wanted(context, loaded, file, history, overrides)
        with closing(open_history(history, "up", parts=("nameserver", "broker"))):
            serve(running_all_with_workers(wanted, embedded, nameserver=at))
        return
    with closing(open_history(history, "up", parts=("nameserver", "broker", "proxy"))) as writer:
        serve(running_all(loaded, embedded, writer, nameserver=at, file=file))


def nameserver(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="folder for values that must survive a restart (default: keep them in memory)",
        ),
    ] = None,
    listen: Listen = DEFAULT_NAMESERVER,
    tls_mode: TlsMode = None,
    tls_certificate: ServerCertificate = None,
    tls_key: ServerKey = None,
    tls_client_ca: ClientCa = None,
    tls_crl_file: Crl = None,
    acl: Annotated[
        Path | None,
        typer.Option(
            "--acl",
            help="file of accounts, the brokers' own: brokers sign their registrations, and only"
            " administrators change values (default: any client may)",
        ),
    ] = None,
    history: HistoryOption = None,
) -> None:
    """Run a nameserver."""
    from proxy.cli.servers import running_nameserver, server_tls

    tls = server_tls(
        mode=tls_mode,
        certificate=tls_certificate,
        key=tls_key,
        client_ca=tls_client_ca,
        crl_file=tls_crl_file,
    )
    with closing(open_history(history, "nameserver", parts=("nameserver",))):
        serve(running_nameserver(listen or DEFAULT_NAMESERVER, data=data, tls=tls, acl=acl))


def broker(
    data: DataOption = None,
    settings: BrokerSettingsOption = None,
    listen: BrokerListen = None,
    http: BrokerHttpOption = None,
    nameserver: BrokerNameservers = None,
    flush: Flush = None,
    role: Role = None,
    broker_id: Annotated[
        int | None,
        typer.Option(
            "--broker-id",
            help="0 for the master, a different number for each slave or voter; environment"
            " ORDERLANE_BROKER__BROKER_ID",
        ),
    ] = None,
    replication: Replication = None,
    history: HistoryOption = None,
) -> None:
    """Run an embedded broker, as a master, as a slave, or as one of three that elect a master."""
    from proxy.cli.servers import load_broker_settings, running_broker

    options = {
        "data": data,
        "listen": listen,
        "http": http,
        "nameserver": nameserver,
        "flush": flush,
        "role": role,
        "broker_id": broker_id,
        "replication": replication,
    }
    embedded = load_broker_settings(settings, options, data=DEFAULT_DATA)
    with closing(open_history(history, "broker", parts=("broker",))):
        serve(running_broker(embedded))


def proxy(
    context: typer.Context,
    settings: SettingsOption = None,
    nameserver: ProxyNameservers = None,
    thrift_port: ThriftPort = None,
    http_port: HttpPort = None,
    workers: Workers = None,
    history: HistoryOption = None,
) -> None:
    """Run a consumer proxy, or several workers that share its ports."""
    overrides = {} if nameserver is None else {"nameserver": nameserver}
    file, loaded = _load(settings, overrides)
    loaded = _with_options(loaded, thrift_port, http_port, workers)
    if loaded.workers > 1:
        serve(running_workers(_wanted(context, loaded, file, history, overrides)))
        return
    from proxy.cli.servers import running_proxy

    with closing(open_history(history, "proxy", parts=("proxy",))) as writer:
        serve(running_proxy(loaded, writer, file=file))


def _load(path: Path | None, options: dict[str, str]) -> tuple[SettingsFile | None, Settings]:
    if path is None:
        return None, load_settings(None, options)
    file = SettingsFile(path, options)
    return file, file.settings


def _with_options(
    settings: Settings, thrift: int | None, http: int | None, workers: int | None
) -> Settings:
    """Return *settings* with the given ports and workers; hosts are unchanged."""
    listen = settings.listen
    ports = {"thrift": at_port(listen.thrift, thrift), "http": at_port(listen.http, http)}
    update: dict[str, object] = {"listen": listen.model_copy(update=ports)}
    if workers is not None:
        update["workers"] = workers
    return settings.model_copy(update=update)


def _wanted(
    context: typer.Context,
    loaded: Settings,
    file: SettingsFile | None,
    history: Path | None,
    overrides: dict[str, Any],
) -> Wanted:
    return Wanted(
        settings=loaded,
        file=file,
        history=history,
        log_level=context.find_root().params["log_level"],
        overrides=overrides,
    )
