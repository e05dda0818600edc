"""The registry of sinks, the actions by which the proxy delivers messages itself.

A new sink needs a settings model beside this file, a module in ``proxy/delivery/sinks``, an entry
in ``SINKS``, and tests. Validation, documentation, the chart's schema, checks of extras and
deliverers follow from the entry. The module is named, not imported: settings need neither aiohttp
nor the package of an extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.settings.delivery import DeliverySettings
from proxy.settings.sinks.push import PushSettings
from proxy.settings.sinks.redis import RedisSettings

_SINKS = f"{__name__.removesuffix('.settings.sinks.registry')}.delivery.sinks"


@dataclass(frozen=True, slots=True)
class Sink:
    """One sink. Its model contains the action's name and the required extra."""

    settings: type[DeliverySettings]
    module: str
    """Module with ``make(settings, access)``, which returns a ``Deliverer``."""
    description: str
    """Description of the action in the documentation and the chart's schema."""

    @property
    def kind(self) -> str:
        """Its name in a list of actions."""
        return self.settings.kind


SINKS: Mapping[str, Sink] = {
    sink.kind: sink
    for sink in (
        Sink(
            PushSettings,
            f"{_SINKS}.push",
            "Send the message to an HTTP receiver; thin clients get no messages of the topic"
            " ([pushing](http-push.md)).",
        ),
        Sink(
            RedisSettings,
            f"{_SINKS}.redis",
            "Write the message to Redis; thin clients get no messages of the topic.",
        ),
    )
}
