"""Collects the metrics of an embedded broker, defined in ``observe.broker_metrics``, at each
scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker_core.broker.figures import BrokerFigures
from proxy.admin.metric_families import MetricFamilies, build_labels
from proxy.observe.broker_metrics import (
    FIGURES,
    OPEN,
    REFUSED_SENDS,
    SHARED,
    broker_definitions,
    own_definitions,
)
from proxy.observe.logs import NoisyLog
from proxy.observe.metrics import BUILD

_noisy = NoisyLog(structlog.get_logger("broker"))


@dataclass(frozen=True, slots=True, eq=False)
class BrokerCollector(Collector):
    """Converts the figures of the broker *name* to metrics.

    *figures* returns None while the broker is not open, and may raise OSError. *beside_proxy*: the
    metrics of a proxy are part of the same scrape, so those that it reports itself are left out.
    """

    name: str
    figures: Callable[[], BrokerFigures | None]
    beside_proxy: bool = False

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; of a broker that is not open or whose disk fails, that it is not."""
        found = MetricFamilies(own_definitions() if self.beside_proxy else broker_definitions())
        if not self.beside_proxy:
            found.put(BUILD, build_labels("broker"), 1)
        try:
            figures = self.figures()
        except OSError as error:
            _noisy.warning("disk", "figures not read", reason=str(error))
            figures = None
        found.put(OPEN, [self.name], figures is not None)
        if figures is not None:
            self._put(found, figures)
        yield from found

    def _put(self, found: MetricFamilies, figures: BrokerFigures) -> None:
        for name, definition in (FIGURES if self.beside_proxy else FIGURES | SHARED).items():
            if (value := getattr(figures, name)) is not None:
                found.put(definition, [self.name], value)
        for reason in REFUSED_SENDS.values:
            found.put(REFUSED_SENDS, [self.name, reason], figures.refused_sends.get(reason, 0))
