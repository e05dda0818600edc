"""Every option of the chart beside the settings, to be combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.helm.rendering import laid_over

_SIDECAR = {"name": "sidecar", "image": "registry.example.com/sidecar:1"}
_INIT = {"name": "prepare", "image": "registry.example.com/prepare:1", "command": ["true"]}
_OF_A_COMPONENT: Mapping[str, Any] = {
    "labels": {"team": "orders"},
    "annotations": {"owner": "orders"},
    "podLabels": {"cost-center": "42"},
    "podAnnotations": {"scrape": "false"},
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraEnvFrom": [{"configMapRef": {"name": "environment"}}],
    "initContainers": [_INIT],
    "extraContainers": [_SIDECAR],
}
_OF_PODS: Mapping[str, Any] = {
    "extraVolumes": [{"name": "files", "configMap": {"name": "files"}}],
    "extraVolumeMounts": [{"name": "files", "mountPath": "/files", "readOnly": True}],
    "priorityClassName": "high",
    "nodeSelector": {"disk": "ssd"},
}
_GATEWAY = [{"name": "gateway", "namespace": "networking"}]

#: Names of an option, and its values. All of them go together, with the alternatives below.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "common labels and annotations": {
        "commonLabels": {"part-of": "shop"},
        "commonAnnotations": {"contact": "orders@example.com"},
    },
    "an account": {"serviceAccount": {"name": "runner", "annotations": {"role": "none"}}},
    "a security context": {
        "podSecurityContext": {"fsGroup": 2000, "supplementalGroups": [3000]},
        "containerSecurityContext": {"privileged": False},
    },
    "OpenShift": {"openshift": True},
    "options of proxies": {"proxy": _OF_A_COMPONENT},
    "options of brokers": {"embedded": _OF_A_COMPONENT},
    "options of nameservers": {"embedded": {"nameserver": _OF_A_COMPONENT}},
    "a place for proxies": {"proxy": _OF_PODS},
    "a place for brokers and nameservers": {"embedded": _OF_PODS},
    "deleted volumes": {
        "embedded": {"storage": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}}
    },
    "an ingress": {
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "labels": {"public": "no"},
            "annotations": {"nginx.ingress.kubernetes.io/proxy-read-timeout": "3600"},
            "hosts": [
                {"host": "a.example.com"},
                {"host": "b.example.com", "paths": [{"path": "/api", "pathType": "Exact"}]},
            ],
            "tls": [{"hosts": ["a.example.com"], "secretName": "a-tls"}],
        }
    },
    "a route for HTTP": {
        "gateway": {
            "http": {"enabled": True, "parentRefs": _GATEWAY, "hostnames": ["a.example.com"]}
        }
    },
    "a route for Thrift": {"gateway": {"thrift": {"enabled": True, "parentRefs": _GATEWAY}}},
    "a token for the test": {
        "tests": {"token": {"name": "test-token"}, "topic": "checks", "group": "checks"},
        "secrets": {"tokens": {"name": "tokens"}},
    },
    "files of secrets": {"secrets": {"files": {"name": "files", "keys": ["a", "b"]}}},
    "TLS": {"tls": {each: {"secret": f"{each}-tls"} for each in ("thrift", "http", "brokers")}},
    "workers": {"proxy": {"workers": 3}},
    "an autoscaler": {"proxy": {"autoscaling": {"enabled": True, "lag": {"metric": "lag"}}}},
    "a load balancer": {"proxy": {"service": {"type": "LoadBalancer", "annotations": {"a": "b"}}}},
    "stored groups": {"settings": {"group_store": "nameserver"}},
    "groups": {"groups": [{"name": "billing", "topics": [{"name": "orders"}]}]},
    "a port for producers": {"settings": {"listen": {"producer": "0.0.0.0:9613"}}},
    "monitoring": {
        "monitoring": {
            each: {"enabled": True} for each in ("serviceMonitor", "prometheusRule", "dashboard")
        }
    },
    "closed networks": {"networkPolicy": {"clients": [{"podSelector": {}}]}},
    "secrets for pulls": {"imagePullSecrets": [{"name": "pull"}]},
}

#: Options of which a release has one.
BROKERS: Mapping[str, Mapping[str, Any]] = {
    "one broker": {},
    "three brokers": {"embedded": {"brokers": 3}},
    "slaves": {"embedded": {"replication": {"mode": "async", "replicas": 2}}},
    "slaves in sync": {"embedded": {"brokers": 2, "replication": {"mode": "sync"}}},
    "elected masters": {"embedded": {"brokers": 2, "replication": {"mode": "elected"}}},
    "claims": {
        "embedded": {
            "storage": {"existingClaim": "store"},
            "nameserver": {"replicas": 1, "existingClaim": "names"},
        }
    },
    "three nameservers": {"embedded": {"nameserver": {"replicas": 3}}},
    "Apache RocketMQ": {"embedded": {"enabled": False}, "nameserver": "mq:9876"},
}
NAMES: Mapping[str, Mapping[str, Any]] = {
    "the chart's names": {},
    "another name": {"nameOverride": "lanes"},
    "a whole name": {"fullnameOverride": "gateway"},
    "no account of its own": {"serviceAccount": {"create": False}},
    "no policies": {"networkPolicy": {"enabled": False}},
    "no test": {"tests": {"enabled": False}},
}


def together(*without: str) -> dict[str, Any]:
    """Return the values of all options but those."""
    values: dict[str, Any] = {}
    for name, each in OPTIONS.items():
        if name not in without:
            values = laid_over(values, each)
    return values


def matrix() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a description and values: each option alone, each left out of all others, and each
    alternative without options and with all.
    """
    for number, (name, values) in enumerate(OPTIONS.items()):
        yield name, dict(values)
        brokers = list(BROKERS)[number % len(BROKERS)]
        yield f"all but {name}, {brokers}", laid_over(together(name), BROKERS[brokers])
    for name, values in {**BROKERS, **NAMES}.items():
        yield name, dict(values)
        yield f"{name} with all options", laid_over(together(), values)
