"""The TLS side of the Thrift port, and of requests that the proxy makes."""

from __future__ import annotations

import ssl
from pathlib import Path

from proxy.errors import OrderlaneError
from proxy.settings import TlsSettings

#: Seconds for a client to finish its handshake, and to answer the end of a connection.
HANDSHAKE_S, SHUTDOWN_S = 10.0, 1.0


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """What a listener needs; TLS 1.2 at least. Raises OrderlaneError that names the setting."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for name in ("certificate", "key", "client_ca"):
        _check_readable(name, getattr(settings, name))
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise OrderlaneError(
            f"listen.tls: {settings.certificate} and {settings.key} are no certificate and its"
            f" unencrypted key in PEM: {_why(error)}"
        ) from None
    if settings.client_ca is not None:
        try:
            context.load_verify_locations(settings.client_ca)
        except ssl.SSLError as error:
            raise OrderlaneError(
                f"listen.tls.client_ca: {settings.client_ca} holds no certificate in PEM:"
                f" {_why(error)}"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(ca_file: str | None) -> ssl.SSLContext:
    """What a request needs whose server is to be of an authority in *ca_file*, or (None) of one
    that the system trusts. Raises ValueError in words that follow the file's name.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:  # an OSError, too
        raise ValueError(f"holds no certificate in PEM: {_why(error)}") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None


def _check_readable(name: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        raise OrderlaneError(f"listen.tls.{name}: cannot read {path}: {error.strerror}") from None


def _no_password() -> str:
    raise ValueError("the key has a password")


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
