"""The rendered chart, as Kubernetes receives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart

from testkit.processes import ROOT

CHART = ROOT / "helm"
RELEASE = "shop"
NAME = "shop-orderlane"
#: Addresses of the embedded nameservers.
NAMESERVERS = tuple(f"{NAME}-nameserver-{n}.{NAME}-nameserver:9876" for n in range(2))

#: The chart has no image of its own.
IMAGE: Mapping[str, Any] = {"image": {"repository": "registry.example.com/orderlane"}}

#: Values for each supported use of the chart.
USES: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "several brokers": {
        "embedded": {
            "brokers": 3,
            "settings": {"retention_hours": 24, "default_queues": 16},
            "storage": {"size": "1Ti", "className": "fast"},
            "nodeSelector": {"disk": "ssd"},
        }
    },
    "on Apache RocketMQ": {
        "embedded": {"enabled": False},
        "nameserver": "mq-0.mq:9876,mq-1.mq:9876",
        "settings": {"lock": {"broker_lock_expiry_s": 60}},
    },
    "with groups and settings": {
        "groups": [
            {
                "name": "billing",
                "topics": [{"name": "orders", "order_key": "$.order.id", "tags": "paid || sent"}],
            }
        ],
        "settings": {
            "limits": {"max_connections": 500},
            "ownership": {"drain_s": 44.5},
            "listen": {"producer": "0.0.0.0:9613"},
        },
        "proxy": {"replicas": 5, "workers": 3},
    },
    "with TLS and a place to run": {
        "settings": {
            "listen": {"tls": {"certificate": "/tls/tls.crt", "key": "/tls/tls.key"}},
            "broker_tls": {"ca": "/tls/ca.crt", "verify": "ca"},
            "auto_create_groups": True,
        },
        "embedded": {
            "settings": {
                "tls": {"certificate": "/tls/tls.crt", "key": "/tls/tls.key"},
                "client_tls": {"ca": "/tls/ca.crt", "verify": "ca"},
            },
            "nameserver": {
                "args": ["--tls-certificate", "/tls/tls.crt", "--tls-key", "/tls/tls.key"]
            },
            "extraVolumes": [{"name": "tls", "secret": {"secretName": "orderlane-tls"}}],
            "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
        },
        "imagePullSecrets": [{"name": "pull"}],
        "proxy": {
            "extraVolumes": [{"name": "tls", "secret": {"secretName": "orderlane-tls"}}],
            "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
            "extraEnv": [{"name": "ORDERLANE_COMMIT_EVERY_S", "value": "2"}],
            "service": {"type": "LoadBalancer", "annotations": {"internal": "yes"}},
            "podAnnotations": {"team": "orders"},
            "tolerations": [{"key": "mq", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
        },
    },
    "with Secrets": {
        "settings": {
            "access": [{"principals": ["billing"], "may": ["pull"], "groups": ["billing"]}],
            "secrets": [{"name": "old", "environment": "OLD"}],
        },
        "secrets": {
            "tokens": {"name": "orderlane-tokens", "key": "list"},
            "files": {"name": "orderlane-secrets", "keys": ["signature", "redis-password"]},
        },
        "tls": {
            "thrift": {"secret": "thrift-tls", "clientCa": True},
            "http": {"secret": "http-tls"},
            "brokers": {"secret": "broker-tls"},
        },
        "monitoring": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    },
    "scaled by processors and lag": {
        "proxy": {
            "autoscaling": {
                "enabled": True,
                "maxReplicas": 20,
                "lag": {"metric": "orderlane_lag", "matchLabels": {"namespace": "default"}},
            },
            "preStopSeconds": 0,
            "topologySpread": [],
            "maxUnavailable": "25%",
        },
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"team": "orders"}}}],
            "brokerClients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        },
    },
    "on Apache RocketMQ, scaled by lag alone": {
        "embedded": {"enabled": False},
        "nameserver": "mq-0.mq:9876",
        "tls": {"brokers": {"secret": "rocketmq-ca"}},
        "settings": {"lock": {"broker_lock_expiry_s": 60}},
        "proxy": {
            "workers": 2,
            "autoscaling": {
                "enabled": True,
                "cpuPercent": None,
                "lag": {"metric": "orderlane_consumer_lag_messages", "type": "Pods"},
            },
        },
        "monitoring": {"serviceMonitor": {"enabled": True}},
        "networkPolicy": {"operators": [], "prometheus": []},
    },
    "without policies of the network": {"networkPolicy": {"enabled": False}},
    "brokers that elect their masters": {
        "embedded": {"brokers": 2, "replication": {"mode": "elected"}},
        "networkPolicy": {"clients": [{"podSelector": {}}]},
    },
    "a broker with slaves": {
        "embedded": {
            "replication": {"mode": "sync", "replicas": 3},
            "settings": {"lock_in_strict_mode": True},
            "nameserver": {"replicas": 1},
        },
    },
}

#: Contents of Secrets that tests need: name of the Secret, key.
SECRETS = {
    ("orderlane-tokens", "list"): f"- {{name: billing, sha256: {'0a' * 32}}}\n",
}


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge *above* over *below*, as Helm merges values."""
    merged = dict(below)
    for name, value in above.items():
        inner = merged.get(name)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        merged[name] = laid_over(inner, value) if both else value
    return merged


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses a key that is there twice, as API servers do: plain YAML keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        assert len(names) == len(set(names)), f"a name is given twice: {names}"
        return dict(super().construct_mapping(node, deep=deep))


@dataclass(frozen=True)
class Rendered:
    """All manifests of one rendering."""

    manifests: list[dict[str, Any]]
    notes: str

    @classmethod
    def of(cls, values: Mapping[str, Any], *, name: str = RELEASE, chart: Path = CHART) -> Rendered:
        files = Chart.load(chart).render({**IMAGE, **values}, name=name, namespace="default")
        texts = [text for path, text in files.items() if path.endswith(".yaml")]
        found = [each for text in texts for each in yaml.load_all(text, _Loader) if each]
        (notes,) = (text for path, text in files.items() if path.endswith("/NOTES.txt"))
        return cls(found, notes)

    def one(self, kind: str, name: str) -> dict[str, Any]:
        """Return the manifest of that kind and name."""
        (found,) = (
            each
            for each in self.manifests
            if (each["kind"], each["metadata"]["name"]) == (kind, name)
        )
        return found

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return all manifests of that kind."""
        return [each for each in self.manifests if each["kind"] == kind]

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the template of the pods by component."""
        return {
            each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: (
                each["spec"]["template"]
            )
            for each in self.manifests
            if each["kind"] in ("Deployment", "StatefulSet")
        }

    def templates(self) -> list[dict[str, Any]]:
        """Return the templates of all pods."""
        workloads = self.all("Deployment") + self.all("StatefulSet")
        return [each["spec"]["template"] for each in workloads]

    def container(self, component: str) -> dict[str, Any]:
        """Return the container of that component."""
        container = self.pods()[component]["spec"]["containers"][0]
        assert container["name"] == component
        return dict(container)

    def environment(self, component: str) -> dict[str, str]:
        """Return the variables of that component; values from Secrets come from SECRETS."""
        found = {}
        for each in self.container(component).get("env", ()):
            source = each.get("valueFrom", {})
            if "secretKeyRef" in source:
                key = source["secretKeyRef"]
                found[each["name"]] = SECRETS[key["name"], key["key"]]
            elif "fieldRef" in source:
                found[each["name"]] = f"{NAME}-{component}-0"  # metadata.name
            else:
                found[each["name"]] = str(each["value"])
        return found

    def broker_settings(self) -> dict[str, str]:
        """Return the settings file of each broker by the name of its pod."""
        found = {}
        for workload in self.all("StatefulSet"):
            spec = workload["spec"]["template"]["spec"]
            container = spec["containers"][0]
            if container["name"] == "broker":
                (volume,) = (each for each in spec["volumes"] if each["name"] == "settings")
                files = self.one("ConfigMap", volume["configMap"]["name"])["data"]
                for number in range(workload["spec"]["replicas"]):
                    pod = f"{workload['metadata']['name']}-{number}"
                    path = container["args"][-1].replace("$(POD_NAME)", pod)
                    found[pod] = files[path.removeprefix("/etc/orderlane/")]
        return found

    def settings(self, component: str) -> str:
        """Return the settings file of that component."""
        (text,) = self.one("ConfigMap", f"{NAME}-{component}")["data"].values()
        return str(text)
