"""The certificate authorities that a sink trusts."""

from __future__ import annotations

from ssl import SSLContext

from proxy.net.tls import client_context
from proxy.settings.delivery import DeliverySettings


def trust_of(settings: DeliverySettings) -> SSLContext | None:
    """Return a context with the authorities of *settings*; None: those of the system.

    Raises ValueError with one sentence if their file cannot be read.
    """
    if settings.authorities is None:
        return None
    try:
        return client_context(settings.authorities)
    except ValueError as error:
        raise ValueError(f"its ca_file {settings.authorities} {error}") from None
