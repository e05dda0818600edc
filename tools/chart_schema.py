"""Generator of ``helm/values.schema.json``: the chart's own values and every setting of proxies and
brokers.

The settings come from the models that the processes read. ``python -m tools.chart_schema`` writes
the file, ``--check`` only reports whether it is fresh, as a test does. It is draft-07, which every
Helm 3 and 4 supports.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel

from broker_core.broker.settings import BrokerSettings
from proxy.settings.proxy_settings import MOST_WORKERS, Settings
from tools.tables import ROOT

FILE = ROOT / "helm/values.schema.json"
Schema = dict[str, Any]

#: Settings that are elsewhere in the values or fixed, with the place or reason. The templates
#: refuse them with a sentence of their own.
OWN_PROXY: Mapping[str, str] = {
    "nameserver": "Set by nameserver, at the top of the values.",
    "workers": "Set by proxy.workers.",
    "groups": "Set by groups, at the top of the values.",
    "listen.thrift": "Fixed: port 9713 of the pod.",
    "listen.http": "Fixed: port 9714 of the pod.",
}
OWN_BROKER: Mapping[str, str] = {
    "data": "Fixed: the volume of the pod.",
    "listen": "Fixed: port 10911 of the pod.",
    "http": "Fixed: port 10914 of the pod.",
    "nameserver": "Fixed: the embedded nameserver.",
    "broker_name": "Fixed: the name of the pod.",
}


# ---- words --------------------------------------------------------------------------------------


def _closed(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _text(*, filled: bool = False) -> Schema:
    return {"type": "string", "minLength": 1} if filled else {"type": "string"}


def _whole(least: int, most: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": least}
    return schema if most is None else {**schema, "maximum": most}


def _list(items: Schema | None = None) -> Schema:
    return {"type": "array", "items": {"type": "object"} if items is None else items}


def _choice(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


_SWITCH: Schema = {"type": "boolean"}
#: Kubernetes checks their contents.
_MAP: Schema = {"type": "object"}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
#: Without the labels by which services and policies select pods.
_LABELS: Schema = {
    **_TEXTS,
    "propertyNames": {
        "not": {"enum": [f"app.kubernetes.io/{name}" for name in ("name", "instance", "component")]}
    },
}
#: The beginning of all names; with the longest addition they are still names of Services.
_NAME: Schema = {
    "type": "string",
    "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$",
    "maxLength": 40,
}
#: Allowing none to be unavailable would mean that a node can never be drained.
_SOME_PODS: Schema = {
    "anyOf": [_whole(1), {"type": "string", "pattern": "^([1-9]|[1-9][0-9]|100)%$"}]
}


# ---- the chart's own values ---------------------------------------------------------------------


def _placement() -> dict[str, Schema]:
    return {
        "nodeSelector": _TEXTS,
        "tolerations": _list(),
        "affinity": _MAP,
        "topologySpread": _list(
            {"type": "object", "required": ["topologyKey", "maxSkew", "whenUnsatisfiable"]}
        ),
    }


def _labelled() -> dict[str, Schema]:
    return {"labels": _LABELS, "annotations": _TEXTS}


def _component() -> dict[str, Schema]:
    """Return what each component has of its own."""
    return {
        **_labelled(),
        "podLabels": _LABELS,
        "podAnnotations": _TEXTS,
        "extraEnv": _list(),
        "extraEnvFrom": _list(),
        "initContainers": _list(),
        "extraContainers": _list(),
    }


def _pods() -> dict[str, Schema]:
    """Return what brokers and nameservers share."""
    return {
        "extraVolumes": _list(),
        "extraVolumeMounts": _list(),
        "priorityClassName": _text(),
        **_placement(),
    }


def _everywhere() -> dict[str, Schema]:
    return {
        "nameOverride": _NAME,
        "fullnameOverride": _NAME,
        "commonLabels": _LABELS,
        "commonAnnotations": _TEXTS,
        "serviceAccount": _closed(
            create=_SWITCH, name=_text(), annotations=_TEXTS, automountToken=_SWITCH
        ),
        "podSecurityContext": _MAP,
        "containerSecurityContext": _MAP,
        "openshift": _SWITCH,
    }


def _proxy() -> Schema:
    lag = _closed(
        metric=_text(),
        type=_choice("External", "Pods"),
        matchLabels=_TEXTS,
        averageValue=_text(filled=True),
    )
    autoscaling = _closed(
        enabled=_SWITCH,
        minReplicas=_whole(1),
        maxReplicas=_whole(1),
        cpuPercent={"type": ["integer", "null"], "minimum": 1},
        lag=lag,
        behavior=_MAP,
    )
    service = _closed(type=_choice("ClusterIP", "NodePort", "LoadBalancer"), annotations=_TEXTS)
    return _closed(
        replicas=_whole(1),
        workers=_whole(1, MOST_WORKERS),
        resources=_MAP,
        preStopSeconds=_whole(0, 600),
        endWithinSeconds=_whole(1),
        maxUnavailable=_SOME_PODS,
        autoscaling=autoscaling,
        service=service,
        **_component(),
        **_pods(),
    )


def _embedded(settings: Schema) -> Schema:
    keep = _choice("Retain", "Delete")
    storage = _closed(
        size=_text(filled=True),
        className=_text(),
        existingClaim=_text(),
        persistentVolumeClaimRetentionPolicy=_closed(whenDeleted=keep, whenScaled=keep),
    )
    nameserver = _closed(
        replicas=_whole(1, 9),
        args=_list(_text()),
        size=_text(filled=True),
        existingClaim=_text(),
        resources=_MAP,
        **_component(),
    )
    return _closed(
        enabled=_SWITCH,
        brokers=_whole(1, 99),
        replication=_closed(
            mode=_choice("none", "async", "sync", "elected"), replicas=_whole(2, 9)
        ),
        settings=settings,
        storage=storage,
        resources=_MAP,
        **_component(),
        **_pods(),
        nameserver=nameserver,
    )


def _secrets() -> dict[str, Schema]:
    port = _closed(secret=_text(), clientCa=_SWITCH, crl=_SWITCH)
    key = {"type": "string", "pattern": "^[-._a-zA-Z0-9]+$", "maxLength": 64}
    return {
        "secrets": _closed(
            tokens=_closed(name=_text(), key=_text(filled=True)),
            files=_closed(name=_text(), keys=_list(key)),
            groupStore=_closed(name=_text()),
        ),
        "tls": _closed(
            thrift=port,
            http=port,
            brokers=_closed(secret=_text(), verify=_choice("", "full", "ca", "none")),
        ),
    }


def _around() -> dict[str, Schema]:
    peers = _list()
    path = {
        **_closed(
            path=_text(filled=True),
            pathType=_choice("Prefix", "Exact", "ImplementationSpecific"),
        ),
        "required": ["path"],
    }
    host = {**_closed(host=_text(filled=True), paths=_list(path)), "required": ["host"]}
    route = {"enabled": _SWITCH, **_labelled(), "parentRefs": _list()}
    return {
        "ingress": _closed(
            enabled=_SWITCH, className=_text(), **_labelled(), hosts=_list(host), tls=_list()
        ),
        "gateway": _closed(
            http=_closed(**route, hostnames=_list(_text(filled=True))), thrift=_closed(**route)
        ),
        "tests": _closed(
            enabled=_SWITCH,
            topic=_text(),
            group=_text(),
            token=_closed(name=_text(), key=_text(filled=True)),
        ),
        "networkPolicy": _closed(
            enabled=_SWITCH, clients=peers, operators=peers, prometheus=peers, brokerClients=peers
        ),
        "monitoring": _closed(
            serviceMonitor=_closed(
                enabled=_SWITCH, labels=_TEXTS, interval=_text(filled=True), tlsConfig=_MAP
            ),
            prometheusRule=_closed(enabled=_SWITCH, labels=_TEXTS, runbookUrl=_text(filled=True)),
            dashboard=_closed(enabled=_SWITCH, labels=_TEXTS),
        ),
    }


# ---- settings -----------------------------------------------------------------------------------


def _tidy(schema: Any) -> Any:
    """Return the schema without titles, which repeat the names, and with one-line descriptions."""
    if isinstance(schema, list):
        return [_tidy(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    tidied: Schema = {}
    for name, value in schema.items():
        if name in ("properties", "definitions"):
            tidied[name] = {each: _tidy(inner) for each, inner in value.items()}
        elif name == "description":
            tidied[name] = " ".join(value.split())
        elif name != "title" and not (name == "default" and isinstance(value, dict)):
            tidied[name] = _tidy(
                value
            )  # the default of a group consists of the defaults of its settings
    return tidied


def _of(model: type[BaseModel]) -> tuple[Schema, Schema]:
    """Return the schema of *model*, and its references."""
    schema = _tidy(model.model_json_schema(ref_template="#/definitions/{model}"))
    definitions = schema.pop("$defs", {})
    return schema, {name: _tidy(each) for name, each in definitions.items()}


def _set_apart(schema: Schema, definitions: Schema, own: Mapping[str, str]) -> None:
    """Replace settings that the chart sets itself by a note on their place."""
    for path, where in own.items():
        place, _, name = path.rpartition(".")
        group = schema
        if place:
            group = definitions[schema["properties"][place]["$ref"].rpartition("/")[2]]
        group["properties"][name] = {"description": where}
        if name in group.get("required", ()):
            group["required"].remove(name)


def chart_schema() -> Schema:
    """Return the whole schema."""
    settings, definitions = _of(Settings)
    groups = settings["properties"]["groups"]
    _set_apart(settings, definitions, OWN_PROXY)
    broker, of_broker = _of(BrokerSettings)
    _set_apart(broker, of_broker, OWN_BROKER)
    image = _closed(
        repository=_text(),
        tag=_text(),
        pullPolicy=_choice("Always", "IfNotPresent", "Never"),
    )
    values = _closed(
        image=image,
        imagePullSecrets=_list(),
        **_everywhere(),
        nameserver=_text(),
        groups=groups,
        settings=settings,
        **_secrets(),
        proxy=_proxy(),
        embedded=_embedded(broker),
        **_around(),
    )
    values["properties"]["global"] = _MAP
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Made by python -m tools.chart_schema.",
        **values,
        "definitions": definitions | of_broker,
    }


def text() -> str:
    """Return the contents of the file."""
    return orjson.dumps(
        chart_schema(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    ).decode()


def main(arguments: list[str]) -> str | None:
    """Write the file, or with ``--check`` report whether it is stale."""
    if arguments != ["--check"]:
        FILE.write_text(text())
    elif FILE.read_text() != text():
        return f"{FILE} is stale: run python -m tools.chart_schema"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
