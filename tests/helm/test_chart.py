"""The rendered chart is valid for Kubernetes, and the processes accept it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python import HelmError
from helm_python.chart import lint
from kubernetes_validate.utils import all_versions

from proxy.cli.servers import load_broker_settings
from proxy.settings.proxy_settings import load_settings
from proxy.settings.types import host_port
from proxy.workers.addresses import worker_addresses
from tests.helm.rendering import CHART, IMAGE, NAME, NAMESERVERS, USES, Rendered, laid_over

#: As ``kubeVersion`` of Chart.yaml says, and the newest known version.
VERSIONS = [version for version in all_versions() if float(version.split(".")[1]) >= 25]

uses = pytest.mark.parametrize("values", [pytest.param(v, id=use) for use, v in USES.items()])


#: Two alternatives of the values for each independent option.
SWITCHES: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = (
    ({}, {"embedded": {"enabled": False}, "nameserver": "mq:9876"}),
    ({}, {"proxy": {"workers": 4}}),
    ({}, {"proxy": {"autoscaling": {"enabled": True, "lag": {"metric": "lag"}}}}),
    ({}, {"tls": {each: {"secret": f"{each}-tls"} for each in ("thrift", "http", "brokers")}}),
    ({}, {"networkPolicy": {"enabled": False}}),
    ({}, {"monitoring": {"serviceMonitor": {"enabled": True}}}),
    ({}, {"secrets": {"tokens": {"name": "t"}, "files": {"name": "s", "keys": ["a", "b"]}}}),
)


#: Groups of custom resources, whose schemas are not part of Kubernetes.
ELSEWHERE = {"monitoring.coreos.com", "gateway.networking.k8s.io"}


def validate(rendered: Rendered, version: str) -> None:
    """Validate all objects of Kubernetes itself against its schemas."""
    for manifest in rendered.manifests:
        if manifest["apiVersion"].partition("/")[0] not in ELSEWHERE:
            kubernetes_validate.validate(manifest, version, strict=True)


@uses
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_manifests_are_valid(values: Mapping[str, Any], version: str) -> None:
    validate(Rendered.of(values), version)


@pytest.mark.parametrize("run", range(8))
def test_each_two_switches_go_together_in_each_way(run: int) -> None:
    """Eight runs cover all four states of every two of seven switches: a column is the parity of
    some of the three bits of *run*.
    """
    values: dict[str, Any] = {}
    for column, ways in enumerate(SWITCHES, start=1):
        values = laid_over(values, ways[(run & column).bit_count() % 2])
    rendered = Rendered.of(values)
    validate(rendered, VERSIONS[-1])
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered.manifests]
    assert len(names) == len(set(names))


def test_a_wrong_manifest_would_be_seen() -> None:
    manifest = Rendered.of({}).one("Deployment", f"{NAME}-proxy")
    manifest["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


@uses
def test_helm_finds_nothing_to_complain_of(values: Mapping[str, Any]) -> None:
    report = lint(CHART, {**IMAGE, **values}, strict=True)
    worse_than_info = [each for each in report["messages"] if each["severity"] > 1]
    assert (worse_than_info, report["errors"]) == ([], [])


@uses
def test_the_processes_take_their_settings(values: Mapping[str, Any], tmp_path: Path) -> None:
    rendered = Rendered.of(values)
    file = tmp_path / "orderlane.yaml"
    file.write_text(rendered.settings("proxy"))
    settings = load_settings(file, environment=rendered.environment("proxy"))
    assert (settings.listen.thrift, settings.listen.http) == ("0.0.0.0:9713", "0.0.0.0:9714")
    assert settings.workers == values.get("proxy", {}).get("workers", 1)
    assert [group.name for group in settings.groups] == [
        group["name"] for group in values.get("groups", [])
    ]
    if "broker" not in rendered.pods():
        assert ",".join(settings.nameserver) == values["nameserver"]
        return
    number = values.get("embedded", {}).get("nameserver", {}).get("replicas", 2)
    assert settings.nameserver == NAMESERVERS[:number]
    assert rendered.broker_settings()
    for text in rendered.broker_settings().values():
        file.write_text(text)
        broker = load_broker_settings(file, {}, data=tmp_path)
        assert (str(broker.data), broker.listen) == ("/data", "0.0.0.0:10911")
        assert broker.http == "0.0.0.0:10914"
        assert broker.nameserver == settings.nameserver
        assert broker.lock_expiry_s >= settings.lock.broker_lock_expiry_s


@uses
def test_services_lead_to_pods_and_probes_to_ports(values: Mapping[str, Any]) -> None:
    rendered = Rendered.of(values)
    for manifest in rendered.manifests:
        if manifest["kind"] != "Service":
            continue
        spec = manifest["spec"]
        (pod,) = (
            pod
            for pod in rendered.pods().values()
            if spec["selector"].items() <= pod["metadata"]["labels"].items()
        )
        ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in spec["ports"]} <= ports
    for component in rendered.pods():
        container = rendered.container(component)
        named = {port["name"] for port in container["ports"]}
        probes = [probe for name, probe in container.items() if name.endswith("Probe")]
        assert len(probes) >= 2
        for probe in probes:
            assert (probe.get("httpGet") or probe["tcpSocket"])["port"] in named


def test_the_ports_of_workers_are_those_that_they_listen_at() -> None:
    shared = {"listen.thrift": "0.0.0.0:9713", "listen.http": "0.0.0.0:9714"}
    container = Rendered.of({"proxy": {"workers": 3}}).container("proxy")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"thrift": 9713, "http": 9714} | {
        f"{name}-{place.number}": host_port(getattr(place, name))[1]
        for place in worker_addresses(3, shared=shared)
        for name in ("thrift", "http")
    }


@uses
def test_nothing_runs_as_root_or_writes_where_it_should_not(values: Mapping[str, Any]) -> None:
    for pod in Rendered.of(values).pods().values():
        security = pod["spec"]["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 10001)
        assert pod["spec"]["automountServiceAccountToken"] is False
        for container in pod["spec"]["containers"]:
            own = container["securityContext"]
            assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)


def test_a_change_of_groups_restarts_no_proxy_and_any_other_does() -> None:
    def annotations(values: Mapping[str, Any]) -> Any:
        return Rendered.of(values).pods()["proxy"]["metadata"]["annotations"]

    groups = [{"name": "billing", "topics": [{"name": "orders"}]}]
    assert annotations({"groups": groups}) == annotations({})
    assert annotations({"settings": {"commit_every_s": 1}}) != annotations({})
    # The folder is mounted: a single file would never change in a running pod.
    mounts = Rendered.of({}).container("proxy")["volumeMounts"]
    assert [(mount["mountPath"], "subPath" in mount) for mount in mounts] == [
        ("/etc/orderlane", False)
    ]


def test_files_of_tls_are_where_brokers_and_nameserver_look_for_them() -> None:
    rendered = Rendered.of(USES["with TLS and a place to run"])
    for component in ("broker", "nameserver", "proxy"):
        mounts = rendered.container(component)["volumeMounts"]
        assert "/tls" in {each["mountPath"] for each in mounts}
        volumes = rendered.pods()[component]["spec"]["volumes"]
        assert "tls" in {each["name"] for each in volumes}
    assert rendered.container("nameserver")["args"][-4:] == [
        *("--tls-certificate", "/tls/tls.crt"),
        *("--tls-key", "/tls/tls.key"),
    ]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"embedded": {"enabled": False}}, "nameserver should name those of Apache RocketMQ"),
        ({"nameserver": "mq:9876"}, "nameserver should be empty while embedded.enabled is true"),
        ({"settings": {"groups": []}}, "settings.groups should be at the top of the values"),
        ({"settings": {"nameserver": "mq:9876"}}, "settings.nameserver should be at the top"),
        ({"settings": {"workers": 2}}, "settings.workers should be in the values"),
        ({"proxi": {"replicas": 2}}, "proxi"),
        ({"proxy": {"replicas": 0}}, "replicas"),
        ({"groups": [{"name": "billing"}]}, "topics"),
        ({"proxy": {"service": {"type": "Public"}}}, "ClusterIP"),
        ({"proxy": {"maxUnavailable": 0}}, "maxUnavailable"),
        ({"proxy": {"maxUnavailable": "0%"}}, "maxUnavailable"),
        ({"settings": {"limits": {"memory": 1}}}, "memory"),
        ({"settings": {"ownership": {"drain_s": "30"}}}, "drain_s"),
        ({"groups": [{"name": "a", "topics": [{"name": "t", "order": "KEY"}]}]}, "order"),
        ({"embedded": {"settings": {"retention": 3}}}, "retention"),
        ({"embedded": {"settings": {"data": "/x"}}}, "embedded.settings.data should not be given"),
        ({"embedded": {"settings": {"broker_name": "b"}}}, "embedded.settings.broker_name should"),
        (
            {"settings": {"listen": {"thrift": "0.0.0.0:1"}}},
            "settings.listen.thrift should not be given",
        ),
        (
            {"tls": {"brokers": {"secret": "s"}}, "settings": {"broker_tls": {}}},
            "settings.broker_tls should be left out if tls.brokers.secret is given",
        ),
        (
            {"tls": {"thrift": {"secret": "s"}}, "settings": {"listen": {"tls": None}}},
            "settings.listen.tls should be left out if tls.thrift.secret is given",
        ),
        (
            {"tls": {"http": {"secret": "s"}}, "settings": {"listen": {"http_tls": None}}},
            "settings.listen.http_tls should be left out if tls.http.secret is given",
        ),
        (
            {"tls": {"brokers": {"secret": "s"}}, "embedded": {"settings": {"tls": None}}},
            "embedded.settings.tls should be left out if tls.brokers.secret is given",
        ),
        (
            {"secrets": {"tokens": {"name": "s"}}, "settings": {"tokens": []}},
            "settings.tokens should be left out if secrets.tokens.name is given",
        ),
        (
            {"proxy": {"autoscaling": {"enabled": True, "cpuPercent": None}}},
            "proxy.autoscaling should have cpuPercent or lag.metric",
        ),
        (
            {"proxy": {"autoscaling": {"enabled": True, "maxReplicas": 1}}},
            "proxy.autoscaling.maxReplicas should be no less than minReplicas",
        ),
        (
            {"proxy": {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}}},
            "proxy.resources.requests.cpu should be given",
        ),
        (
            {
                "settings": {"listen": {"http_tls": {"certificate": "/c", "key": "/k"}}},
                "monitoring": {"serviceMonitor": {"enabled": True}},
            },
            "monitoring.serviceMonitor.tlsConfig should say how Prometheus verifies",
        ),
    ],
)
def test_wrong_values_are_refused_with_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HelmError, match=re.escape(sentence)):
        Rendered.of(values)


def documented() -> list[dict[str, Any]]:
    """Return the values in docs/kubernetes.md; the other YAML there is for an adapter."""
    text = (CHART.parent / "docs/kubernetes.md").read_text()
    blocks = map(yaml.safe_load, re.findall(r"```yml\n(.*?)```", text, flags=re.S))
    return [values for values in blocks if "externalRules" not in values]


@pytest.mark.parametrize("values", documented())
def test_values_in_the_document_are_right(values: dict[str, Any]) -> None:
    assert Rendered.of(values).manifests != Rendered.of({}).manifests


def test_the_chart_has_the_version_of_the_application() -> None:
    project = (CHART.parent / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"', project, re.MULTILINE)
    assert version is not None
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == version[1]
