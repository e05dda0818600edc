"""The access of receivers in tests."""

from __future__ import annotations

from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.core.delivery.secret import Secret


def access(**secrets: bytes) -> ReceiverAccess:
    """Return the access of a group in the settings file, with unbound secrets by name."""
    return ReceiverAccess(secrets={name: Secret(value) for name, value in secrets.items()})
