"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from thin_client import Tls

ProxyOption = Annotated[
    str, typer.Option("--proxy", help="host:port of the proxy's Thrift port; several by commas")
]
HttpOption = Annotated[str, typer.Option("--http", help="host:port of the proxy's HTTP port")]
NameserverOption = Annotated[
    str, typer.Option("--nameserver", help="host:port of the nameserver; several by commas")
]
SettingsOption = Annotated[Path | None, typer.Option("--settings", help="settings file (YAML)")]
HistoryOption = Annotated[
    Path | None, typer.Option("--history", help="folder to write this process's history to")
]
DataOption = Annotated[
    Path | None, typer.Option("--data", help="folder of the data (default: orderlane-data)")
]

TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="ORDERLANE_CLIENT_TOKEN", help="token to show to the proxy"),
]
CaOption = Annotated[
    Path | None,
    typer.Option("--tls-ca", help="use TLS: file with the authority of the proxy's certificate"),
]
CertificateOption = Annotated[
    Path | None, typer.Option("--tls-certificate", help="use TLS: file with our own certificate")
]
KeyOption = Annotated[
    Path | None, typer.Option("--tls-key", help="file with the key of --tls-certificate")
]

DEFAULT_PROXY = "127.0.0.1:9713"
DEFAULT_HTTP = "127.0.0.1:9714"
DEFAULT_NAMESERVER = "127.0.0.1:9876"


def client_tls(ca: Path | None, certificate: Path | None, key: Path | None) -> Tls | None:
    """How a client connects by those options; None: without TLS."""
    if ca is None and certificate is None and key is None:
        return None
    from thin_client import Tls  # verbs without clients need none of it

    ca_text, certificate_text, key_text = (
        None if path is None else str(path) for path in (ca, certificate, key)
    )
    return Tls(ca=ca_text, certificate=certificate_text, key=key_text)
