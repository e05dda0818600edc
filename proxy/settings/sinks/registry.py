"""All sinks: actions by which the proxy delivers messages itself, as their settings name them.

A new sink is a model of settings beside this file, a module in ``proxy/delivery/sinks``, an entry
in ``SINKS``, and its tests. Validation, documents, the chart's schema, checks of extras and the
deliverers themselves come from the entry. The module is named and not imported: settings need
neither aiohttp nor the package of an extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.settings.delivery import DeliverySettings
from proxy.settings.sinks.push import PushSettings
from proxy.settings.sinks.redis import RedisSettings


@dataclass(frozen=True, slots=True)
class Sink:
    """One sink. Its name in a list of actions, and the extra that it needs, stand in its model."""

    settings: type[DeliverySettings]
    module: str
    """Has ``make(settings, secrets)``, which returns a ``Deliverer``; *secrets* are the proxy's, by
    name."""
    description: str
    """What the documents and the chart's schema say of the action."""

    @property
    def kind(self) -> str:
        """Its name in a list of actions."""
        return self.settings.kind


SINKS: Mapping[str, Sink] = {
    sink.kind: sink
    for sink in (
        Sink(
            PushSettings,
            "proxy.delivery.sinks.push",
            "Send the message to an HTTP receiver; thin clients get no messages of the topic"
            " ([pushing](http-push.md)).",
        ),
        Sink(
            RedisSettings,
            "proxy.delivery.sinks.redis",
            "Write the message to Redis; thin clients get no messages of the topic.",
        ),
    )
}
