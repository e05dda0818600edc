"""The TLS of a proxy: of its ports, of requests that it makes, and of its way to brokers."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from broker_core.errors import TlsError
from broker_core.tls import HANDSHAKE_S as HANDSHAKE_S
from broker_core.tls import SHUTDOWN_S as SHUTDOWN_S
from broker_core.tls import ClientContext, LiveContext
from proxy.errors import OrderlaneError
from proxy.settings.proxy_settings import BrokerTlsSettings, TlsSettings


def port_context(settings: TlsSettings, setting: str, *, optional: bool = False) -> LiveContext:
    """See ``LiveContext``; raises OrderlaneError that names the setting."""
    try:
        return LiveContext(settings, setting, optional=optional)
    except TlsError as error:
        raise OrderlaneError(str(error)) from None


def broker_context(settings: BrokerTlsSettings | None) -> ClientContext | None:
    """How brokers and nameservers are connected to, None: without TLS. Raises OrderlaneError."""
    try:
        return None if settings is None else ClientContext(settings, "broker_tls")
    except TlsError as error:
        raise OrderlaneError(str(error)) from None


def client_context(ca_file: str | None) -> ssl.SSLContext:
    """What a request needs whose server is to be of an authority in *ca_file*, or (None) of one
    that the system trusts. Raises ValueError in words that follow the file's name.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:  # an OSError, too
        reason = getattr(error, "reason", None) or str(error)
        raise ValueError(f"holds no certificate in PEM: {reason}") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The common name in the subject of *certificate*, as ``ssl`` shows a peer's; None if it has no
    name, or several: nobody could say which counts.
    """
    parts = (certificate or {}).get("subject", ())
    names = [value for part in parts for name, value in part if name == "commonName"]
    return names[0] if len(names) == 1 else None
