"""Access to the pods: network policies, host names and Secrets."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.servers import load_broker_settings
from proxy.net.principals import Principals
from proxy.settings.proxy_settings import Settings, load_settings
from tests.helm.rendering import NAME, USES, Rendered

uses = pytest.mark.parametrize("values", [pytest.param(v, id=use) for use, v in USES.items()])
WITH_SECRETS = USES["with Secrets"]


def settings_of(rendered: Rendered, folder: Path) -> Settings:
    file = folder / "orderlane.yaml"
    file.write_text(rendered.settings("proxy"))
    return load_settings(file, environment=rendered.environment("proxy"))


def policies(rendered: Rendered) -> dict[str, dict[str, Any]]:
    """Return, by component, the only policy that selects its pods."""
    found = {}
    for component, pod in rendered.pods().items():
        (found[component],) = (
            each["spec"]
            for each in rendered.all("NetworkPolicy")
            if each["spec"]["podSelector"]["matchLabels"].items()
            <= pod["metadata"]["labels"].items()
        )
    return found


# ---- the network --------------------------------------------------------------------------------


@uses
def test_every_port_of_every_pod_stands_in_one_rule(values: Mapping[str, Any]) -> None:
    rendered = Rendered.of(values)
    if not values.get("networkPolicy", {}).get("enabled", True):
        assert rendered.all("NetworkPolicy") == []
        return
    for component, policy in policies(rendered).items():
        ports = [port["name"] for port in rendered.container(component)["ports"]]
        named = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
        assert sorted(named) == sorted(ports)
        assert policy["policyTypes"] == ["Ingress"]


def peers(rendered: Rendered, component: str, port: str) -> list[Any] | None:
    """Return the allowed peers of that port; None: all."""
    (rule,) = (
        rule
        for rule in policies(rendered)[component]["ingress"]
        if port in {each["port"] for each in rule["ports"]}
    )
    if "from" in rule:
        assert rule["from"], "an empty list of peers lets everybody in"
    return rule.get("from")


def pods_of(component: str) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "orderlane",
        "app.kubernetes.io/instance": "shop",
        "app.kubernetes.io/component": component,
    }
    return {"podSelector": {"matchLabels": labels}}


def test_who_may_connect_to_what() -> None:
    rendered = Rendered.of({})
    prometheus = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }
    here = {"podSelector": {}}  # pods of the namespace
    assert peers(rendered, "proxy", "thrift") is None
    assert peers(rendered, "proxy", "http") == [
        *(pods_of("proxy"), pods_of("test"), here, prometheus)
    ]
    for component in ("broker", "nameserver"):
        assert peers(rendered, component, component) == [pods_of("proxy"), pods_of("broker")]

    rendered = Rendered.of(USES["scaled by processors and lag"])
    team = {"namespaceSelector": {"matchLabels": {"team": "orders"}}}
    assert peers(rendered, "proxy", "thrift") == [team, pods_of("test")]
    outside = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    assert peers(rendered, "broker", "broker") == [pods_of("proxy"), pods_of("broker"), outside]

    # Only the pods of the release: an empty list would admit all.
    rendered = Rendered.of(USES["on Apache RocketMQ, scaled by lag alone"])
    assert peers(rendered, "proxy", "http-2") == [pods_of("proxy"), pods_of("test")]


@uses
def test_the_headless_service_leads_thin_clients_to_each_proxy(values: Mapping[str, Any]) -> None:
    rendered = Rendered.of(values)
    service = rendered.one("Service", f"{NAME}-proxy-headless")["spec"]
    assert service["clusterIP"] == "None"
    # Not before it is ready, and not while it drains.
    assert "publishNotReadyAddresses" not in service
    container = rendered.container("proxy")
    numbers = {port["name"]: port["containerPort"] for port in container["ports"]}
    thrift = {name: number for name, number in numbers.items() if not name.startswith("http")}
    assert {port["name"]: port["port"] for port in service["ports"]} == thrift
    assert all(port["targetPort"] == port["name"] for port in service["ports"])


@uses
def test_the_http_port_stays_in_the_cluster(values: Mapping[str, Any]) -> None:
    for service in Rendered.of(values).all("Service"):
        leaves = service["spec"].get("type", "ClusterIP") != "ClusterIP"
        names = {port["name"] for port in service["spec"]["ports"]}
        assert not (leaves and any(name.startswith("http") for name in names))


def test_producers_of_ddmq_have_their_port() -> None:
    rendered = Rendered.of(USES["with groups and settings"])
    ports = rendered.container("proxy")["ports"]
    assert {"name": "producer", "containerPort": 9613} in ports
    service = rendered.one("Service", f"{NAME}-proxy")["spec"]["ports"]
    assert {"name": "producer", "port": 9613, "targetPort": "producer"} in service


# ---- secrets ------------------------------------------------------------------------------------


@uses
def test_the_chart_makes_no_secret(values: Mapping[str, Any]) -> None:
    assert Rendered.of(values).all("Secret") == []


def test_only_stored_groups_have_a_key_that_the_chart_makes(tmp_path: Path) -> None:
    stored = {"settings": {"group_store": "nameserver"}}
    rendered = Rendered.of(stored)
    (secret,) = rendered.all("Secret")
    assert len(b64decode(secret["data"]["key"])) == 64
    settings = settings_of(rendered, tmp_path)
    (key,) = settings.secrets
    assert (settings.group_store_keys, key.hosts) == ((key.name,), ())
    assert mounted(rendered, "proxy")[str(key.file)] == f"{secret['metadata']['name']}/key"
    assert b64decode(secret["data"]["key"]).decode() not in rendered.settings("proxy")
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"

    own = Rendered.of({**stored, "secrets": {"groupStore": {"name": "mine"}}})
    assert own.all("Secret") == []
    assert mounted(own, "proxy")["/group-store/key"] == "mine/key"
    named = {"secrets": [{"name": "k", "environment": "K"}], "group_store_keys": ["k"]}
    given = Rendered.of({"settings": {**stored["settings"], **named}})
    assert given.all("Secret") == []
    assert "/group-store/key" not in mounted(given, "proxy")


def test_the_nameserver_has_the_accounts_of_the_brokers() -> None:
    args = Rendered.of({"embedded": {"settings": {"acl": "/acl/accounts.yml"}}}).container(
        "nameserver"
    )["args"]
    assert args[args.index("--acl") + 1] == "/acl/accounts.yml"
    assert "--acl" not in Rendered.of({}).container("nameserver")["args"]


def test_tokens_come_from_a_secret_and_stand_nowhere_else(tmp_path: Path) -> None:
    rendered = Rendered.of(WITH_SECRETS)
    assert "0a0a" not in str(rendered.manifests)
    settings = settings_of(rendered, tmp_path)
    assert [token.name for token in settings.tokens] == ["billing"]
    assert Principals(settings).have_rules


def mounted(rendered: Rendered, component: str) -> dict[str, str]:
    """Return, for each file that a Secret mounts into the pods of *component*, its path → Secret
    and key.
    """
    spec = rendered.pods()[component]["spec"]
    paths = {
        each["name"]: each["mountPath"] for each in rendered.container(component)["volumeMounts"]
    }
    files = {}
    for volume in spec.get("volumes", ()):
        if secret := volume.get("secret"):
            assert secret["defaultMode"] == 0o440  # the process reads them by fsGroup
            keys = [each["key"] for each in secret.get("items", ())]
            for key in keys or ["tls.crt", "tls.key", "ca.crt"]:
                files[f"{paths[volume['name']]}/{key}"] = f"{secret['secretName']}/{key}"
    return files


def test_what_settings_name_is_mounted(tmp_path: Path) -> None:
    rendered = Rendered.of(WITH_SECRETS)
    settings = settings_of(rendered, tmp_path)
    files = mounted(rendered, "proxy")
    tls, http_tls, broker_tls = settings.listen.tls, settings.listen.http_tls, settings.broker_tls
    assert tls is not None
    assert http_tls is not None
    assert broker_tls is not None
    assert [files[str(path)] for path in (tls.certificate, tls.key, tls.client_ca)] == [
        *("thrift-tls/tls.crt", "thrift-tls/tls.key", "thrift-tls/ca.crt")
    ]
    assert [files[path] for path in (http_tls.certificate, http_tls.key)] == [
        *("http-tls/tls.crt", "http-tls/tls.key")
    ]
    assert http_tls.client_ca is None
    assert (files[str(broker_tls.ca)], broker_tls.verify) == ("broker-tls/ca.crt", "ca")
    assert {each.name: each.file and files[each.file] for each in settings.secrets} == {
        "old": None,
        "signature": "orderlane-secrets/signature",
        "redis-password": "orderlane-secrets/redis-password",
    }
    # Proxies must not receive the brokers' key.
    assert "broker-tls/tls.key" not in files.values()


def test_tls_between_proxies_brokers_and_nameserver(tmp_path: Path) -> None:
    rendered = Rendered.of(WITH_SECRETS)
    file = tmp_path / "broker.yaml"
    file.write_text(rendered.settings("broker"))
    broker = load_broker_settings(file, {}, data=tmp_path)
    files = mounted(rendered, "broker")
    assert broker.tls is not None
    assert broker.client_tls is not None
    assert files[broker.tls.certificate] == "broker-tls/tls.crt"
    assert files[broker.tls.key] == "broker-tls/tls.key"
    assert (files[str(broker.client_tls.ca)], broker.client_tls.verify) == (
        "broker-tls/ca.crt",
        "ca",
    )
    files = mounted(rendered, "nameserver")
    arguments = rendered.container("nameserver")["args"]
    assert files[arguments[arguments.index("--tls-certificate") + 1]] == "broker-tls/tls.crt"
    assert files[arguments[arguments.index("--tls-key") + 1]] == "broker-tls/tls.key"

    # Apache RocketMQ's certificates contain their host names.
    of_rocketmq = Rendered.of(USES["on Apache RocketMQ, scaled by lag alone"])
    tls = settings_of(of_rocketmq, tmp_path).broker_tls
    assert tls is not None
    assert (tls.ca, tls.verify) == ("/tls/brokers/ca.crt", "full")


@uses
def test_probes_speak_as_the_port_does(values: Mapping[str, Any], tmp_path: Path) -> None:
    rendered = Rendered.of(values)
    has_tls = settings_of(rendered, tmp_path).listen.http_tls is not None
    container = rendered.container("proxy")
    probes = [probe for name, probe in container.items() if name.endswith("Probe")]
    assert {probe["httpGet"]["scheme"] for probe in probes} == {"HTTPS" if has_tls else "HTTP"}
