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
            "volumes": [{"name": "tls", "secret": {"secretName": "orderlane-tls"}}],
            "volumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
        },
        "imagePullSecrets": [{"name": "pull"}],
        "proxy": {
            "volumes": [{"name": "tls", "secret": {"secretName": "orderlane-tls"}}],
            "volumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
            "env": [{"name": "ORDERLANE_COMMIT_EVERY_S", "value": "2"}],
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
}

#: Contents of Secrets that tests need: name of the Secret, key.
SECRETS = {
    ("orderlane-tokens", "list"): f"- {{name: billing, sha256: {'0a' * 32}}}\n",
}


@dataclass(frozen=True)
class Rendered:
    """All manifests of one rendering."""

    manifests: list[dict[str, Any]]

    @classmethod
    def of(cls, values: Mapping[str, Any], *, name: str = RELEASE, chart: Path = CHART) -> Rendered:
        files = Chart.load(chart).render(dict(values), name=name, namespace="default")
        texts = [text for path, text in files.items() if path.endswith(".yaml")]
        found = [each for text in texts for each in yaml.safe_load_all(text) if each]
        return cls(found)

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

    def container(self, component: str) -> dict[str, Any]:
        """Return the container of that component."""
        (container,) = self.pods()[component]["spec"]["containers"]
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

    def settings(self, component: str) -> str:
        """Return the settings file of that component."""
        (text,) = self.one("ConfigMap", f"{NAME}-{component}")["data"].values()
        return str(text)
