"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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

DEFAULT_PROXY = "127.0.0.1:9713"
DEFAULT_HTTP = "127.0.0.1:9714"
DEFAULT_NAMESERVER = "127.0.0.1:9876"
