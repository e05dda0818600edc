"""Every metric of a broker is exported with the values of its figures."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from broker_core.broker.figures import BrokerFigures
from broker_core.broker.sending.counts import OTHER, REFUSALS
from proxy.admin.metric_families import Scrape
from proxy.admin.metrics_collector import ProxyCollector
from proxy.core.jobs.window import Budget
from proxy.embedded.broker_collector import BrokerCollector
from proxy.observe.broker_metrics import (
    FIGURES,
    REFUSED_SENDS,
    SHARED,
    broker_definitions,
    own_definitions,
)
from proxy.observe.metrics import PREFIX, definitions

_OF_REFUSALS = {"refused_sends": {"no_permission": 4}}
FULL = BrokerFigures(
    **{each.name: number for number, each in enumerate(fields(BrokerFigures), 10)} | _OF_REFUSALS  # type: ignore[arg-type]
)


def scrape(collector: BrokerCollector) -> dict[tuple[str, str], float]:
    """Return the values by name and the last label."""
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        (sample.name, sample.labels.get("reason") or sample.labels.get("broker", "")): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_every_figure_of_a_broker_is_a_metric_of_that_value() -> None:
    names = {each.name for each in fields(BrokerFigures)}
    assert FIGURES.keys() | SHARED.keys() | {"refused_sends"} == names
    values = scrape(BrokerCollector("b", lambda: FULL))
    for name, definition in {**FIGURES, **SHARED}.items():
        assert values[PREFIX + definition.name, "b"] == getattr(FULL, name)
    assert values[f"{PREFIX}broker_refused_sends_total", "no_permission"] == 4
    assert values[f"{PREFIX}broker_refused_sends_total", "other"] == 0
    assert {name for name, _ in values} == {PREFIX + each.name for each in broker_definitions()}
    assert values[f"{PREFIX}build_info", ""] == 1


def test_each_reason_of_a_refusal_is_exported_from_the_start() -> None:
    assert REFUSED_SENDS.values == (*(code.name.lower() for code in REFUSALS), OTHER)


def test_figures_that_a_broker_does_not_have_are_absent() -> None:
    slave = replace(FULL, oldest_message=None, voters=None, in_sync=None, master_epoch=None)
    missing = {name for name, _ in scrape(BrokerCollector("b", lambda: FULL))} - {
        name for name, _ in scrape(BrokerCollector("b", lambda: slave))
    }
    assert missing == {
        "orderlane_broker_oldest_message_timestamp_seconds",
        "orderlane_broker_replicas",
        "orderlane_broker_replicas_in_sync",
        "orderlane_broker_master_epoch",
    }


@pytest.mark.parametrize("error", [None, OSError(5, "Input/output error")])
def test_a_broker_without_figures_is_not_open(error: OSError | None) -> None:
    def figures() -> BrokerFigures | None:
        if error is not None:
            raise error
        return None

    values = scrape(BrokerCollector("b", figures))
    assert values == {("orderlane_build_info", ""): 1, ("orderlane_broker_open", "b"): 0}


async def test_beside_a_proxy_no_family_is_exported_twice() -> None:
    proxy = ProxyCollector([], Budget(1), dict)
    broker = BrokerCollector("b", lambda: FULL, beside_proxy=True)
    text = (await Scrape(proxy, broker).text()).decode()
    for each in (*definitions(), *own_definitions()):
        assert text.count(f"# TYPE {PREFIX}{each.name} ") == 1
