"""What the dashboard and the alert rules of ``helm/files`` ask for."""

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

#: Words of PromQL behind which labels stand in brackets.
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")
_METRIC = re.compile(r"\borderlane_\w+(?:\{([^}]*)\})?")
_MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")

#: Given by Prometheus itself: where a sample was scraped.
OF_THE_SCRAPE = frozenset({"instance", "job"})


class Query(NamedTuple):
    """An expression, where it stands, and labels that the text beside it shows."""

    place: str
    expression: str
    shown: frozenset[str]

    @property
    def metrics(self) -> set[str]:
        """The names of ours in it."""
        return {found[0].partition("{")[0] for found in _METRIC.finditer(self.expression)}

    @property
    def labels(self) -> set[str]:
        """All labels in it, by which it selects or groups, or that the text shows."""
        found = set(self.shown)
        for each in _GROUPING.finditer(self.expression):
            found |= {name.strip() for name in each[1].split(",")}
        for metric in _METRIC.finditer(self.expression):
            found |= set(_MATCHED.findall(metric[1] or ""))
        return found


def alerts() -> list[dict[str, object]]:
    """The rules."""
    return [rule for each in yaml.safe_load(ALERTS.read_text())["groups"] for rule in each["rules"]]


def queries() -> Iterator[Query]:
    """Of all alerts and all panels, and of the dashboard's variables."""
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
    """*expression* of a panel, with values in place of the dashboard's variables."""
    return re.sub(r"\$(group|topic)\b", ".+", expression.replace("$__rate_interval", "5m"))
