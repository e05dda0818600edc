"""Settings of the actions that deliver: what all of them have."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from proxy.settings.types import Seconds, SettingsGroup

#: What a text with expressions may look at, of a message that is delivered.
DELIVERED = frozenset(
    "attempt body group key message_id offset order_key properties queue raw tag text topic".split()
)


class DeliverySettings(SettingsGroup):
    """What every delivering action has."""

    kind: ClassVar[str]
    """Its name in the list of actions."""

    concurrency: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 64
    """Messages under way to the target at a time, of distinct order keys, at one proxy. Order
    holds however many these are; what the target bears is the limit."""
    timeout_s: Seconds = 5.0
    """Seconds of one attempt, from its begin to the target's whole answer; past them it has
    failed, and the message is tried again after a retry interval."""
