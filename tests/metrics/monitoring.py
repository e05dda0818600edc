"""Queries of the dashboard and the alert rules in ``helm/files``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml

from testkit.processes import ROOT

ALERTS = ROOT / "helm/files/alerts.yaml"
DASHBOARD = ROOT / "helm/files/dashboard.json"
RULE_TESTS = ROOT / "tests/metrics/alerts_test.yaml"

#: Words of PromQL before labels in parentheses.
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")
_METRIC = re.compile(r"\borderlane_\w+(?:\{([^}]*)\})?")
_MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")

#: Added by Prometheus itself for the origin of a sample.
OF_THE_SCRAPE = frozenset({"instance", "job"})


class Query(NamedTuple):
    """An expression, its place, and labels that the text beside it shows."""

    place: str
    expression: str
    shown: frozenset[str]

    @property
    def metrics(self) -> set[str]:
        """Return orderlane's metrics in it."""
        return {found[0].partition("{")[0] for found in _METRIC.finditer(self.expression)}

    @property
    def labels(self) -> set[str]:
        """Return all labels in it, by which it selects or groups, or that the text shows."""
        found = set(self.shown)
        for each in _GROUPING.finditer(self.expression):
            found |= {name.strip() for name in each[1].split(",")}
        for metric in _METRIC.finditer(self.expression):
            found |= set(_MATCHED.findall(metric[1] or ""))
        return found


def alerts() -> list[dict[str, object]]:
    """Return the alert rules."""
    return [rule for each in yaml.safe_load(ALERTS.read_text())["groups"] for rule in each["rules"]]


def queries() -> Iterator[Query]:
    """Return the queries of all alerts and panels, and of the dashboard's variables."""
    for rule in alerts():
        texts = str(rule["annotations"]) + str(rule["labels"])
        shown = frozenset(re.findall(r"\$labels\.(\w+)", texts))
        yield Query(f"alert {rule['alert']}", str(rule["expr"]), shown)
    board = json.loads(DASHBOARD.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            shown = frozenset(_LEGEND.findall(target["legendFormat"]))
            yield Query(f"panel {panel['title']}", target["expr"], shown)
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            inside = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert inside is not None, variable["name"]
            yield Query(f"variable {variable['name']}", inside[1], frozenset({inside[2]}))


def plain(expression: str) -> str:
    """Return *expression* of a panel, with values for the dashboard's variables."""
    return re.sub(r"\$(group|topic)\b", ".+", expression.replace("$__rate_interval", "5m"))
