"""Objects for Prometheus and Grafana. Their operators' kinds are not in Kubernetes' schemas."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import HelmError

from proxy.workers.addresses import worker_addresses
from tests.helm.rendering import CHART, NAME, USES, Rendered

RULES = {"groups": [{"name": "orderlane", "rules": [{"alert": "A", "expr": "up == 0"}]}]}
#: Contains characters that templates and YAML would misread unless passed on unchanged.
ALERTS = f"# Alerts\n{yaml.safe_dump(RULES)}".replace("up == 0", '"up{job=\\"{{ x }}\\"} == 0"')
BOARD = {"title": "orderlane: {{ group }}", "panels": [{"expr": 'x{a="b"}'}]}
ENABLED: Mapping[str, Any] = {
    "monitoring": {
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    }
}


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Return a copy of the chart, without its files."""
    shutil.copytree(CHART, tmp_path / "helm", ignore=shutil.ignore_patterns("files"))
    return tmp_path / "helm"


def monitor(values: Mapping[str, Any], component: str = "proxy") -> dict[str, Any]:
    (found,) = (
        each
        for each in Rendered.of(values).all("ServiceMonitor")
        if each["metadata"]["name"] == f"{NAME}-{component}"
    )
    return found


def test_nothing_of_the_operators_is_there_unless_it_is_asked_for() -> None:
    kinds = {each["apiVersion"].partition("/")[0] for each in Rendered.of({}).manifests}
    assert "monitoring.coreos.com" not in kinds
    assert NAME + "-dashboard" not in str(Rendered.of({}).manifests)


@pytest.mark.parametrize("workers", [1, 3])
def test_each_worker_is_asked_and_none_twice(workers: int) -> None:
    values = {
        "proxy": {"workers": workers},
        "monitoring": {"serviceMonitor": {"enabled": True, "interval": "15s"}},
    }
    rendered = Rendered.of(values)
    spec = monitor(values)["spec"]
    assert spec["namespaceSelector"] == {"matchNames": ["default"]}
    assert {each["interval"] for each in spec["endpoints"]} == {"15s"}
    selector = spec["selector"]["matchLabels"].items()
    services = [
        each for each in rendered.all("Service") if selector <= each["metadata"]["labels"].items()
    ]
    asked = []
    for endpoint in spec["endpoints"]:
        (port,) = (
            port
            for service in services
            for port in service["spec"]["ports"]
            if port["name"] == endpoint["port"]
        )
        asked.append(port["port"])
    shared = {"listen.thrift": "0.0.0.0:9713", "listen.http": "0.0.0.0:9714"}
    own = [int(place.http.rpartition(":")[2]) for place in worker_addresses(workers, shared=shared)]
    assert asked == ([9714] if workers == 1 else own)


def test_each_embedded_broker_is_asked_at_its_own_port() -> None:
    values: dict[str, Any] = {"monitoring": {"serviceMonitor": {"enabled": True}}}
    rendered = Rendered.of(values)
    spec = monitor(values, "broker")["spec"]
    (endpoint,) = spec["endpoints"]
    (service,) = (
        each
        for each in rendered.all("Service")
        if spec["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    )
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert (endpoint["path"], ports[endpoint["port"]]) == ("/metrics", 10914)
    outside = {"embedded": {"enabled": False}, "nameserver": "rocketmq:9876", **values}
    (only,) = Rendered.of(outside).all("ServiceMonitor")
    assert only["metadata"]["name"] == f"{NAME}-proxy"


def test_alerts_lead_to_the_readers_copy_of_the_documentation() -> None:
    values = {"monitoring": {"prometheusRule": {"enabled": True, "runbookUrl": "https://w.x/op/"}}}
    (rule,) = Rendered.of(values).all("PrometheusRule")
    urls = {each["annotations"]["runbook_url"] for each in rule["spec"]["groups"][0]["rules"]}
    assert "https://w.x/op/#orderlanelaggrows" in urls
    assert all(url.startswith("https://w.x/op/#orderlane") for url in urls)


def test_prometheus_knows_the_certificate_of_the_http_port() -> None:
    found = monitor(USES["with Secrets"])
    assert found["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = found["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == (
        "https",
        {
            "ca": {"secret": {"name": "http-tls", "key": "ca.crt"}},
            "serverName": f"{NAME}-proxy-http.default.svc",
        },
    )
    own = {"ca": {"configMap": {"name": "ca", "key": "ca.crt"}}, "serverName": "orderlane"}
    values = {
        "settings": {"listen": {"http_tls": {"certificate": "/c", "key": "/k"}}},
        "monitoring": {"serviceMonitor": {"enabled": True, "tlsConfig": own}},
    }
    (endpoint,) = monitor(values)["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == own


def test_rules_and_dashboard_are_the_files(chart: Path) -> None:
    (chart / "files").mkdir()
    (chart / "files/alerts.yaml").write_text(ALERTS)
    (chart / "files/dashboard.json").write_text(json.dumps(BOARD, indent=2))
    rendered = Rendered.of(ENABLED, chart=chart)
    (rule,) = rendered.all("PrometheusRule")
    assert rule["spec"] == yaml.safe_load(ALERTS)
    assert "{{ x }}" in rule["spec"]["groups"][0]["rules"][0]["expr"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    board = rendered.one("ConfigMap", f"{NAME}-dashboard")
    assert json.loads(board["data"]["orderlane.json"]) == BOARD
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize(
    ("values", "missing"),
    [("prometheusRule", "files/alerts.yaml"), ("dashboard", "files/dashboard.json")],
)
def test_a_chart_without_the_files_says_so(chart: Path, values: str, missing: str) -> None:
    with pytest.raises(HelmError, match=missing):
        Rendered.of({"monitoring": {values: {"enabled": True}}}, chart=chart)


def test_these_objects_contain_the_files_of_the_chart() -> None:
    """As far as the chart contains them; without them both are refused, as above."""
    there = {file.name: file.read_text() for file in (CHART / "files").glob("*")}
    if "alerts.yaml" in there:
        (rule,) = Rendered.of({"monitoring": {"prometheusRule": {"enabled": True}}}).all(
            "PrometheusRule"
        )
        assert rule["spec"] == yaml.safe_load(there["alerts.yaml"])
    if "dashboard.json" in there:
        rendered = Rendered.of({"monitoring": {"dashboard": {"enabled": True}}})
        board = rendered.one("ConfigMap", f"{NAME}-dashboard")["data"]["orderlane.json"]
        assert json.loads(board) == json.loads(there["dashboard.json"])
    assert set(there) <= {"alerts.yaml", "dashboard.json"}
