"""The effect of each option of the chart beside the settings."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helm_python import HelmError

from broker_core.broker.settings import BrokerSettings
from proxy.cli.servers import load_broker_settings
from tests.helm.options import BROKERS, OPTIONS, together
from tests.helm.rendering import CHART, NAME, Rendered, laid_over

COMPONENTS = ("proxy", "broker", "nameserver")
#: Where the options of a component are in the values.
PLACES = {"proxy": "proxies", "broker": "brokers", "nameserver": "nameservers"}
components = pytest.mark.parametrize("component", COMPONENTS)


def of(*options: str, **values: Any) -> Rendered:
    given: dict[str, Any] = {}
    for each in options:
        given = laid_over(given, OPTIONS[each])
    return Rendered.of(laid_over(given, values))


def pod(rendered: Rendered, component: str) -> dict[str, Any]:
    return dict(rendered.pods()[component]["spec"])


def test_without_an_image_the_chart_says_what_to_do() -> None:
    with pytest.raises(HelmError, match=r"image\.repository should name an image that the cluster"):
        Rendered.of({"image": {"repository": ""}})


# ---- labels and annotations ---------------------------------------------------------------------


def test_common_labels_and_annotations_are_everywhere() -> None:
    values = laid_over(together(), BROKERS["elected masters"])
    rendered = Rendered.of(values)
    everything = [*rendered.manifests, *rendered.templates()]
    assert len(rendered.manifests) > 25
    for each in everything:
        assert each["metadata"]["labels"]["part-of"] == "shop"
        assert each["metadata"]["annotations"]["contact"] == "orders@example.com"


@components
def test_a_component_has_labels_and_annotations_of_its_own(component: str) -> None:
    rendered = of(f"options of {PLACES[component]}")
    for each in (*rendered.manifests, *rendered.templates()):
        metadata = each["metadata"]
        of_it = metadata["labels"]["app.kubernetes.io/component"] == component
        of_pods = "kind" not in each
        named = metadata["name"] if not of_pods else ""
        assert (metadata["labels"].get("team") == "orders") is (of_it and not of_pods), named
        annotations = metadata.get("annotations", {})
        assert (annotations.get("owner") == "orders") is (of_it and not of_pods), named
        assert (metadata["labels"].get("cost-center") == "42") is (of_it and of_pods)
        assert (annotations.get("scrape") == "false") is (of_it and of_pods)


def test_a_new_chart_restarts_no_pod_and_changes_no_selector(tmp_path: Path) -> None:
    """The versions of chart and application appear in the labels of objects alone."""
    values = laid_over(together(), BROKERS["elected masters"])
    values["image"] = {"repository": "orderlane", "tag": "fixed"}
    new = tmp_path / "helm"
    shutil.copytree(CHART, new)
    text = (new / "Chart.yaml").read_text()
    text = re.sub(r"^version: .+$", "version: 7.7.7", text, flags=re.M)
    (new / "Chart.yaml").write_text(
        re.sub(r"^appVersion: .+$", "appVersion: 8.8.8", text, flags=re.M)
    )
    before, after = Rendered.of(values), Rendered.of(values, chart=new)
    assert "7.7.7" in str(after.manifests)
    assert before.templates() == after.templates()
    for kind in ("Deployment", "StatefulSet"):
        specs = [[each["spec"] for each in one.all(kind)] for one in (before, after)]
        assert specs[0] == specs[1]


def test_labels_that_select_pods_cannot_be_replaced() -> None:
    for values in (
        {"commonLabels": {"app.kubernetes.io/instance": "x"}},
        {"proxy": {"podLabels": {"app.kubernetes.io/component": "x"}}},
    ):
        with pytest.raises(HelmError, match=r"app\.kubernetes\.io/"):
            Rendered.of(values)


# ---- pods ---------------------------------------------------------------------------------------


@components
def test_a_component_has_containers_and_variables_of_its_own(component: str) -> None:
    rendered = of(f"options of {PLACES[component]}")
    for each in COMPONENTS:
        spec = pod(rendered, each)
        own = rendered.container(each)
        added = each == component
        assert [c["name"] for c in spec["containers"]] == [each, *["sidecar"] * added]
        assert [c["name"] for c in spec.get("initContainers", ())] == ["prepare"] * added
        assert ({"name": "TZ", "value": "UTC"} in own.get("env", ())) is added
        assert ("envFrom" in own) is added
    # The chart's own variables stay.
    assert "ORDERLANE_BROKER__BROKER_NAME" in rendered.environment("broker")


def test_volumes_and_priority_are_of_proxies_or_of_brokers_and_nameservers() -> None:
    for option, chosen in (
        ("a place for proxies", {"proxy"}),
        ("a place for brokers and nameservers", {"broker", "nameserver"}),
    ):
        rendered = of(option)
        for each in COMPONENTS:
            spec = pod(rendered, each)
            mounts = [mount["mountPath"] for mount in rendered.container(each)["volumeMounts"]]
            assert ("/files" in mounts) is (each in chosen)
            volumes = [volume["name"] for volume in spec.get("volumes", ())]
            assert ("files" in volumes) is (each in chosen)
            assert (spec.get("priorityClassName") == "high") is (each in chosen)


def test_all_pods_have_one_account_without_rights() -> None:
    rendered = Rendered.of({})
    (account,) = rendered.all("ServiceAccount")
    assert (account["metadata"]["name"], account["automountServiceAccountToken"]) == (NAME, False)
    specs = [each["spec"] for each in (*rendered.templates(), *rendered.all("Pod"))]
    assert {each["serviceAccountName"] for each in specs} == {NAME}
    assert not any(each["automountServiceAccountToken"] for each in specs)
    own = of("an account")
    (account,) = own.all("ServiceAccount")
    assert account["metadata"]["name"] == pod(own, "proxy")["serviceAccountName"] == "runner"
    assert account["metadata"]["annotations"] == {"role": "none"}
    for name, used in (("", "default"), ("given", "given")):
        rendered = Rendered.of({"serviceAccount": {"create": False, "name": name}})
        assert rendered.all("ServiceAccount") == []
        assert pod(rendered, "broker")["serviceAccountName"] == used


def test_security_contexts_can_be_replaced_entry_by_entry() -> None:
    rendered = of("a security context", podSecurityContext={"runAsUser": None})
    for template in rendered.templates():
        security = template["spec"]["securityContext"]
        assert security["supplementalGroups"] == [3000]
        assert (security["fsGroup"], security["runAsNonRoot"]) == (2000, True)
        assert "runAsUser" not in security
        own = template["spec"]["containers"][0]["securityContext"]
        assert (own["privileged"], own["readOnlyRootFilesystem"]) == (False, True)


def test_on_openshift_no_pod_has_a_fixed_user_or_group() -> None:
    rendered = of("OpenShift")
    for spec in (each["spec"] for each in (*rendered.templates(), *rendered.all("Pod"))):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & spec["securityContext"].keys()
        assert spec["securityContext"]["runAsNonRoot"] is True


# ---- brokers and nameservers --------------------------------------------------------------------


def stateful(rendered: Rendered, component: str) -> list[dict[str, Any]]:
    return [
        each
        for each in rendered.all("StatefulSet")
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]


@pytest.mark.parametrize("shape", [each for each in BROKERS if each != "Apache RocketMQ"])
def test_the_service_of_a_stateful_set_is_headless_and_selects_its_pods(shape: str) -> None:
    rendered = Rendered.of(BROKERS[shape])
    for each in rendered.all("StatefulSet"):
        service = rendered.one("Service", each["spec"]["serviceName"])["spec"]
        assert service["clusterIP"] == "None"
        assert service["publishNotReadyAddresses"] is True
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert service["selector"].items() <= labels.items()


def brokers_of(rendered: Rendered, folder: Path) -> dict[str, BrokerSettings]:
    """Return the settings of each broker by its pod, as the broker reads them."""
    found = {}
    for name, text in rendered.broker_settings().items():
        file = folder / f"{name}.yaml"
        file.write_text(text)
        found[name] = load_broker_settings(file, {}, data=folder)
    return found


def test_slaves_copy_the_master_in_the_first_pod(tmp_path: Path) -> None:
    rendered = Rendered.of(BROKERS["slaves in sync"])
    found = brokers_of(rendered, tmp_path)
    for number in range(2):
        name = f"{NAME}-broker-{number}"
        replicas = [found.pop(f"{name}-{each}") for each in range(3)]
        assert [each.role for each in replicas] == ["master", "slave", "slave"]
        assert [each.broker_id for each in replicas] == [0, 1, 2]
        assert {each.broker_name for each in replicas} == {name}
        assert {(each.replication, each.total_replicas) for each in replicas} == {("sync", 3)}
    assert found == {}
    asynchronous = brokers_of(Rendered.of(BROKERS["slaves"]), tmp_path).values()
    assert [(each.role, each.replication) for each in asynchronous] == [
        *(("master", "async"), ("slave", "async"))
    ]


def test_elected_replicas_are_the_voters_of_their_broker(tmp_path: Path) -> None:
    rendered = Rendered.of(BROKERS["elected masters"])
    workloads = stateful(rendered, "broker")
    assert [each["spec"]["replicas"] for each in workloads] == [3, 3]
    found = brokers_of(rendered, tmp_path)
    for workload in workloads:
        name, service = workload["metadata"]["name"], workload["spec"]["serviceName"]
        voters = {each + 1: f"{name}-{each}.{service}:10911" for each in range(3)}
        for number in range(3):
            settings = found.pop(f"{name}-{number}")
            assert (settings.role, settings.broker_id) == ("elected", number + 1)
            assert (settings.broker_name, settings.replica_addresses) == (name, voters)
        # They start together, are replaced one at a time, and prefer different nodes.
        assert workload["spec"]["podManagementPolicy"] == "Parallel"
        assert workload["spec"]["minReadySeconds"] == 15
        (spread,) = workload["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"] == workload["spec"]["selector"]
    assert found == {}


def test_another_number_of_brokers_changes_no_broker() -> None:
    def pods(brokers: int) -> list[Any]:
        values = {"embedded": {"brokers": brokers, "replication": {"mode": "elected"}}}
        return stateful(Rendered.of(values), "broker")

    assert pods(2) == pods(3)[:2]


def test_nameservers_are_two_and_known_by_their_own_names() -> None:
    rendered = Rendered.of({})
    (workload,) = stateful(rendered, "nameserver")
    assert workload["spec"]["replicas"] == 2
    budget = rendered.one("PodDisruptionBudget", f"{NAME}-nameserver")["spec"]
    assert budget["maxUnavailable"] == 1
    names = [f"{NAME}-nameserver-{n}.{NAME}-nameserver:9876" for n in range(2)]
    assert f"nameserver: {','.join(names)}" in rendered.settings("proxy")
    assert f"nameserver: {','.join(names)}" in rendered.settings("broker")


def test_volumes_are_claimed_or_given() -> None:
    for component in ("broker", "nameserver"):
        (workload,) = stateful(Rendered.of({}), component)
        (claim,) = workload["spec"]["volumeClaimTemplates"]
        assert claim["metadata"]["name"] == "data"
        assert "persistentVolumeClaimRetentionPolicy" not in workload["spec"]
        (workload,) = stateful(of("deleted volumes"), component)
        policy = workload["spec"]["persistentVolumeClaimRetentionPolicy"]
        assert policy == {"whenDeleted": "Delete", "whenScaled": "Retain"}
        (workload,) = stateful(Rendered.of(BROKERS["claims"]), component)
        assert "volumeClaimTemplates" not in workload["spec"]
        given = {"name": "data", "persistentVolumeClaim": {"claimName": None}}
        given["persistentVolumeClaim"] = {"claimName": {"broker": "store"}.get(component, "names")}
        assert given in workload["spec"]["template"]["spec"]["volumes"]


# ---- from outside the cluster -------------------------------------------------------------------


def test_an_ingress_leads_to_the_http_port() -> None:
    rendered = of("an ingress")
    (ingress,) = rendered.all("Ingress")
    spec = ingress["spec"]
    assert spec["ingressClassName"] == "nginx"
    assert spec["tls"] == [{"hosts": ["a.example.com"], "secretName": "a-tls"}]
    paths = [(rule["host"], path) for rule in spec["rules"] for path in rule["http"]["paths"]]
    assert [(host, path["path"], path["pathType"]) for host, path in paths] == [
        ("a.example.com", "/", "Prefix"),
        ("b.example.com", "/api", "Exact"),
    ]
    for _, path in paths:
        backend = path["backend"]["service"]
        service = rendered.one("Service", backend["name"])["spec"]
        assert backend["port"]["name"] in {port["name"] for port in service["ports"]}
    assert ingress["metadata"]["labels"]["public"] == "no"


@pytest.mark.parametrize(
    ("option", "kind", "version"),
    [
        ("a route for HTTP", "HTTPRoute", "gateway.networking.k8s.io/v1"),
        ("a route for Thrift", "TCPRoute", "gateway.networking.k8s.io/v1alpha2"),
    ],
)
def test_a_route_leads_to_a_port_of_a_service(option: str, kind: str, version: str) -> None:
    """The schemas of the Gateway API are not part of Kubernetes."""
    rendered = of(option)
    (route,) = rendered.all(kind)
    assert route["apiVersion"] == version
    spec = route["spec"]
    hostnames = {"hostnames"} if kind == "HTTPRoute" else set()
    assert spec.keys() == {"parentRefs", "rules"} | hostnames
    assert spec["parentRefs"] == [{"name": "gateway", "namespace": "networking"}]
    ((backend,),) = (rule["backendRefs"] for rule in spec["rules"])
    service = rendered.one("Service", backend["name"])["spec"]
    port = {"HTTPRoute": 9714, "TCPRoute": 9713}[kind]
    assert backend["port"] == port
    assert port in {each["port"] for each in service["ports"]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"ingress": {"enabled": True}}, "ingress.hosts should have at least one host"),
        ({"gateway": {"http": {"enabled": True}}}, "gateway.http.parentRefs should name"),
        ({"gateway": {"thrift": {"enabled": True}}}, "gateway.thrift.parentRefs should name"),
        (
            {"embedded": {"brokers": 2, "storage": {"existingClaim": "c"}}},
            "embedded.storage.existingClaim should be left out with several brokers",
        ),
        (
            {"embedded": {"nameserver": {"existingClaim": "c"}}},
            "embedded.nameserver.existingClaim should be left out with several nameservers",
        ),
        (
            {"embedded": {"replication": {"mode": "elected", "replicas": 2}}},
            "embedded.replication.replicas should be 3 or more with mode elected",
        ),
        (
            {"embedded": {"replication": {"mode": "sync"}, "settings": {"role": "slave"}}},
            "embedded.settings.role should be left out if embedded.replication.mode is not none",
        ),
        (
            {
                "embedded": {
                    "replication": {"mode": "elected"},
                    "settings": {"lock_in_strict_mode": True},
                }
            },
            "embedded.settings.lock_in_strict_mode should be left out with",
        ),
        (
            {
                "embedded": {
                    "replication": {"mode": "sync", "replicas": 2},
                    "settings": {"in_sync_replicas": 3},
                }
            },
            "embedded.settings.in_sync_replicas should be no more than",
        ),
        (
            {"tests": {"topic": "t"}, "settings": {"auto_create_groups": False}},
            "tests.topic and tests.group should be given together",
        ),
        (
            {
                "tests": {"topic": "t", "group": "g"},
                "tls": {"thrift": {"secret": "s", "clientCa": True}},
            },
            "tests.topic and tests.group should be left out: the Thrift port needs",
        ),
        ({"fullnameOverride": "Not-A-Label"}, "fullnameOverride"),
        ({"fullnameOverride": "a" * 41}, "fullnameOverride"),
        ({"proxy": {"env": []}}, "env"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HelmError, match=re.escape(sentence)):
        Rendered.of(values)
