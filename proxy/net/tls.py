"""TLS contexts for the proxy's ports, its outgoing requests and its broker connections."""

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
    """Return the context of a listening port. Raises OrderlaneError that names *setting*."""
    try:
        return LiveContext(settings, setting, optional=optional)
    except TlsError as error:
        raise OrderlaneError(str(error)) from None


def broker_context(settings: BrokerTlsSettings | None) -> ClientContext | None:
    """Return the context for brokers and nameservers, or None without TLS. Raises
    OrderlaneError.
    """
    try:
        return None if settings is None else ClientContext(settings, "broker_tls")
    except TlsError as error:
        raise OrderlaneError(str(error)) from None


def client_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a client context that trusts the authorities in *ca_file*, or the system's if it is
    None.

    Raises ValueError with a phrase that follows the file's name.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:  # before OSError: SSLError is a subclass
        reason = getattr(error, "reason", None) or str(error)
        raise ValueError(f"holds no certificate in PEM: {reason}") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the common name in the subject of *certificate*, a dict as returned by
    ``getpeercert``; None if there is none, or more than one, which would be ambiguous.
    """
    parts = (certificate or {}).get("subject", ())
    names = [value for part in parts for name, value in part if name == "commonName"]
    return names[0] if len(names) == 1 else None
