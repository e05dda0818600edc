"""Options shared by several verbs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from thin_client import Tls


def finite(value: float | None) -> float | None:
    """Callback of options that are numbers: "nan" and "inf" pass every minimum and maximum."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


GroupArgument = Annotated[str, typer.Argument(help="consumer group")]
ProxyOption = Annotated[
    str, typer.Option("--proxy", help="host:port of the proxy's Thrift port; comma-separated list")
]
HttpOption = Annotated[
    str,
    typer.Option(
        "--http",
        help="host:port of the proxy's HTTP port; environment: ORDERLANE_ADMIN_TOKEN (token),"
        " ORDERLANE_ADMIN_CA (use TLS: CA file)",
    ),
]
NameserverOption = Annotated[
    str,
    typer.Option(
        "--nameserver",
        help="host:port of the nameserver; comma-separated list; environment:"
        " ORDERLANE_BROKER_ACCESS_KEY and ORDERLANE_BROKER_SECRET_KEY (account),"
        " ORDERLANE_BROKER_TLS__CA (use TLS: CA file)",
    ),
]
SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="settings file (YAML); ORDERLANE_… variables override it"),
]
HistoryOption = Annotated[
    Path | None, typer.Option("--history", help="folder for the history of this process")
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", help="data folder (default: orderlane-data; environment ORDERLANE_BROKER__DATA)"
    ),
]

TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="ORDERLANE_CLIENT_TOKEN", help="token for a proxy with authentication"
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option("--tls-ca", help="use TLS: CA file for the proxy's certificate"),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option("--tls-certificate", help="use TLS: file with the client's certificate"),
]
KeyOption = Annotated[
    Path | None, typer.Option("--tls-key", help="file with the private key of --tls-certificate")
]

DEFAULT_PROXY = "127.0.0.1:9713"
DEFAULT_HTTP = "127.0.0.1:9714"
DEFAULT_NAMESERVER = "127.0.0.1:9876"


def client_tls(ca: Path | None, certificate: Path | None, key: Path | None) -> Tls | None:
    """Return the TLS settings of a client; None for no TLS."""
    if ca is None and certificate is None and key is None:
        return None
    from thin_client import Tls  # verbs without a client do not need it

    ca_text, certificate_text, key_text = (
        None if path is None else str(path) for path in (ca, certificate, key)
    )
    return Tls(ca=ca_text, certificate=certificate_text, key=key_text)
