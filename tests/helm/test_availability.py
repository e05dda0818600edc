"""Pods that start and stop: by roll-outs, drained nodes, and load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.settings.proxy_settings import Settings
from tests.helm.rendering import NAME, USES, Rendered

uses = pytest.mark.parametrize("values", [pytest.param(v, id=use) for use, v in USES.items()])
GROWN = USES["scaled by processors and lag"]


def proxy(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(Rendered.of(values).one("Deployment", f"{NAME}-proxy")["spec"])


@uses
def test_a_pod_has_the_time_that_it_takes_to_drain(values: Mapping[str, Any]) -> None:
    given = values.get("settings", {}).get("ownership", {}).get("drain_s")
    drain_s = Settings().ownership.drain_s if given is None else given
    spec = proxy(values)
    pod = spec["template"]["spec"]
    before = values.get("proxy", {}).get("preStopSeconds", 5)
    assert drain_s + before + 30 <= pod["terminationGracePeriodSeconds"] < drain_s + before + 31
    assert spec["progressDeadlineSeconds"] > pod["terminationGracePeriodSeconds"]


def test_before_a_proxy_drains_services_hear_of_it() -> None:
    lifecycle = Rendered.of({"proxy": {"preStopSeconds": 9}}).container("proxy")["lifecycle"]
    assert lifecycle["preStop"]["exec"]["command"] == ["python", "-c", "import time; time.sleep(9)"]
    assert "lifecycle" not in Rendered.of(GROWN).container("proxy")


def test_a_roll_out_takes_no_proxy_away_before_another_is_ready() -> None:
    assert proxy({})["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@uses
def test_budgets_are_of_pods_that_are_there_and_let_a_node_be_drained(
    values: Mapping[str, Any],
) -> None:
    rendered = Rendered.of(values)
    labels = {part: pod["metadata"]["labels"] for part, pod in rendered.pods().items()}
    chosen = []
    for budget in rendered.all("PodDisruptionBudget"):
        assert "minAvailable" not in budget["spec"]
        assert budget["spec"]["maxUnavailable"] not in (0, "0%")
        selector = budget["spec"]["selector"]["matchLabels"].items()
        (part,) = (part for part, has in labels.items() if selector <= has.items())
        chosen.append(part)
    assert sorted(chosen) == sorted(labels)


@uses
def test_selectors_of_workloads_are_those_of_their_pods_alone(values: Mapping[str, Any]) -> None:
    rendered = Rendered.of(values)
    for kind in ("Deployment", "StatefulSet"):
        for each in rendered.all(kind):
            selector = each["spec"]["selector"]["matchLabels"].items()
            pods = [
                pod for pod in rendered.templates() if selector <= pod["metadata"]["labels"].items()
            ]
            assert pods == [each["spec"]["template"]]


@uses
def test_who_scales_the_proxies_is_one(values: Mapping[str, Any]) -> None:
    rendered = Rendered.of(values)
    scaled = values.get("proxy", {}).get("autoscaling", {}).get("enabled", False)
    spec = rendered.one("Deployment", f"{NAME}-proxy")["spec"]
    assert ("replicas" in spec) is not scaled
    for scaler in rendered.all("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        assert rendered.one(target["kind"], target["name"])["apiVersion"] == target["apiVersion"]
    assert len(rendered.all("HorizontalPodAutoscaler")) == int(scaled)


def test_proxies_are_scaled_by_processors_and_by_lag() -> None:
    (scaler,) = Rendered.of(GROWN).all("HorizontalPodAutoscaler")
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 20)
    assert scaler["spec"]["metrics"] == [
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 70},
            },
        },
        {
            "type": "External",
            "external": {
                "metric": {
                    "name": "orderlane_lag",
                    "selector": {"matchLabels": {"namespace": "default"}},
                },
                "target": {"type": "AverageValue", "averageValue": "10000"},
            },
        },
    ]
    lag_alone = USES["on Apache RocketMQ, scaled by lag alone"]
    (scaler,) = Rendered.of(lag_alone).all("HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    assert metric["type"] == "Pods"
    assert metric["pods"]["metric"] == {"name": "orderlane_consumer_lag_messages"}
    # Each step down hands queues over, so the next one waits until they have settled.
    down = scaler["spec"]["behavior"]["scaleDown"]
    assert (down["stabilizationWindowSeconds"], down["policies"][0]["value"]) == (600, 1)


def test_pods_of_a_part_are_spread_among_themselves() -> None:
    pods = Rendered.of({}).pods()
    keys = {}
    for component, pod in pods.items():
        for each in pod["spec"]["topologySpreadConstraints"]:
            selector = each["labelSelector"]["matchLabels"]
            assert selector["app.kubernetes.io/component"] == component
            assert selector.items() <= pod["metadata"]["labels"].items()
            assert each["whenUnsatisfiable"] == "ScheduleAnyway"
            keys.setdefault(component, []).append(each["topologyKey"])
    zone, host = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
    assert keys == {"proxy": [zone, host], "broker": [host], "nameserver": [host]}
    assert "topologySpreadConstraints" not in Rendered.of(GROWN).pods()["proxy"]["spec"]
