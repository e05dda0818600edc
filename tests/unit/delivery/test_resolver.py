"""Names of receivers that no resolver can look up."""

from __future__ import annotations

import pytest

from proxy.core.delivery.receiver_address import ReceiverAddresses
from proxy.delivery.resolver import CheckedResolver


@pytest.mark.sockets
@pytest.mark.parametrize("host", ["hooks..example.com", f"{'a' * 64}.example.com"])
async def test_an_impossible_name_is_one_that_cannot_be_resolved(host: str) -> None:
    """So its receiver counts as down, and its messages wait instead of failing."""
    with pytest.raises(OSError, match="is no name of a host"):
        await CheckedResolver(ReceiverAddresses()).resolve(host, 80)
