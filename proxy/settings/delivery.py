"""Settings common to all delivering actions."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.settings.types import Seconds, SettingsGroup

#: Names available to expressions about a delivered message.
DELIVERED = frozenset(
    "attempt body group key message_id offset order_key properties queue raw tag text topic".split()
)


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of orderlane with the package that a sink needs."""

    name: str
    package: str

    def check(self) -> None:
        """Raise ValueError if the package is not installed."""
        if find_spec(self.package) is None:
            raise ValueError(
                f"needs the package {self.package}: pip install 'orderlane[{self.name}]'"
            )


class DeliverySettings(SettingsGroup):
    """Settings of every delivering action."""

    kind: ClassVar[str]
    """Its name in the list of actions."""
    extra: ClassVar[Extra | None] = None
    """The required extra."""

    concurrency: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 64
    """Maximum messages on their way to the target at a time, of distinct order keys, for each
    proxy. Any value keeps the order; choose it by the capacity of the target."""
    timeout_s: Seconds = 5.0
    """Seconds for one attempt, from its begin to the target's complete answer; after that the
    attempt has failed, and the message is retried after a retry interval."""

    @model_validator(mode="before")
    @classmethod
    def _installed(cls, given: object) -> object:
        if cls.extra is not None:
            cls.extra.check()
        return given

    @property
    def authorities(self) -> str | None:
        """File with the authorities of the target's certificate; None: the system's."""
        return None

    def check_access(self, access: ReceiverAccess) -> None:
        """Raise ValueError with one sentence if a required secret is missing, unsuitable or not for
        the target, or if the target has an address that is not allowed.
        """
