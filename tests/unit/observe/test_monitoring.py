"""Alert rules and dashboard match the existing metrics and the documentation."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from proxy.observe.broker_metrics import own_definitions
from proxy.observe.metrics import PREFIX, definitions
from testkit.processes import ROOT
from tests.metrics.monitoring import (
    ALERTS,
    DASHBOARD,
    OF_THE_SCRAPE,
    RULE_TESTS,
    Query,
    alerts,
    queries,
)

QUERIES = list(queries())


def labels_by_sample() -> dict[str, set[str]]:
    """Return each exported name with its labels."""
    found = {}
    for each in (*definitions(), *own_definitions()):
        labels = {*each.labels} | OF_THE_SCRAPE
        if each.bounds:
            found[f"{PREFIX}{each.name}_bucket"] = labels | {"le"}
            found[f"{PREFIX}{each.name}_sum"] = found[f"{PREFIX}{each.name}_count"] = labels
        else:
            found[PREFIX + each.name] = labels
    return found


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_a_query_asks_for_metrics_and_labels_that_exist(query: Query) -> None:
    known = labels_by_sample()
    assert query.metrics
    assert query.metrics <= known.keys()
    assert query.labels <= set.union(*(known[name] for name in query.metrics))


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_a_bound_of_a_histogram_is_found_as_each_prometheus_stores_it(query: Query) -> None:
    """Prometheus 2 stores le="30" as it is exported, and Prometheus 3 as "30.0"."""
    assert not re.search(r'\ble="\d+"', query.expression)


def test_a_query_for_what_is_not_there_would_be_seen() -> None:
    query = Query(
        "", 'sum by (group, shoe) (rate(orderlane_x_total{hat=~"$h", le!="1"}[5m]))', {"a"}
    )
    assert query.metrics == {"orderlane_x_total"}
    assert query.labels == {"group", "shoe", "hat", "le", "a"}


def test_each_alert_is_tested_and_has_its_cure_in_the_documentation() -> None:
    names = [str(rule["alert"]) for rule in alerts()]
    tested = set(re.findall(r"alertname: (\w+)", RULE_TESTS.read_text()))
    cases = [
        case
        for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    raised = {case["alertname"] for case in cases if case["exp_alerts"]}
    not_raised = {case["alertname"] for case in cases if not case["exp_alerts"]}
    cures = re.findall(r"^### (Orderlane\w+)$", (ROOT / "docs/operating.md").read_text(), re.M)
    assert len(set(names)) == len(names)
    assert tested == raised == not_raised == set(names)
    assert sorted(cures) == sorted(names)
    for rule in alerts():
        annotations = rule["annotations"]
        assert isinstance(annotations, dict)
        anchor = str(rule["alert"]).lower()
        assert annotations["runbook_url"] == f"docs/operating.md#{anchor}"


def test_the_panels_of_the_dashboard_stand_beside_one_another() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = {
        (at["x"] + x, at["y"] + y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["w"])
        for y in range(at["h"])
    }
    assert len(cells) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in panels)
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_no_template_of_the_chart_would_take_the_files_for_its_own() -> None:
    """They are included unchanged by .Files.Get, so helm must not find templates in them."""
    for path in (ALERTS, DASHBOARD):
        assert ".Values" not in path.read_text()
