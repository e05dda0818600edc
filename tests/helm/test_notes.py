"""Notes after an installation, and the pod of `helm test`."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.helm.options import OPTIONS
from tests.helm.rendering import NAME, NAMESERVERS, USES, Rendered, laid_over
from tests.support.cli_words import Typed, typed

uses = pytest.mark.parametrize("values", [pytest.param(v, id=use) for use, v in USES.items()])
TOKENS: Mapping[str, Any] = {"secrets": {"tokens": {"name": "tokens"}}}


def commands(notes: str) -> list[list[str]]:
    """Return the indented lines, which are commands."""
    return [shlex.split(line) for line in notes.splitlines() if line.startswith("  ")]


def in_pods(notes: str) -> dict[str, Typed]:
    """Return the commands of orderlane by verb, as its command line reads them."""
    found = {}
    for words in commands(notes):
        if "orderlane" in words:
            assert words[:6] == [
                *("kubectl", "-n", "default", "exec"),
                f"deploy/{NAME}-proxy",
                "-c",
            ]
            each = typed(words[words.index("orderlane") + 1 :])
            found[each.verb] = each
    return found


@uses
def test_each_command_of_the_notes_is_complete(values: Mapping[str, Any]) -> None:
    rendered = Rendered.of(values)
    first = commands(rendered.notes)[0]
    assert first[3:] == ["rollout", "status", f"deployment/{NAME}-proxy", "--timeout=5m"]
    assert rendered.one("Deployment", f"{NAME}-proxy")
    in_pods(rendered.notes)
    assert "<no value>" not in rendered.notes
    assert not re.search(r"\n\n\n", rendered.notes)


def test_a_default_installation_accepts_a_first_message() -> None:
    rendered = Rendered.of({})
    assert "auto_create_topics: true" in rendered.settings("broker")
    assert "auto_create_groups: true" in rendered.settings("proxy")
    found = in_pods(rendered.notes)
    assert list(found) == ["produce", "consume"]
    assert all(each.parameters["tls_ca"] is None for each in found.values())
    assert "without tokens, authentication is disabled" in rendered.notes
    refused = {"settings": {"auto_create_groups": False}}
    assert "No group is declared" in Rendered.of(refused).notes
    # Groups and topics of Apache RocketMQ are the user's.
    outside = {"embedded": {"enabled": False}, "nameserver": "mq:9876"}
    assert "auto_create_groups" not in Rendered.of(outside).settings("proxy")


def test_the_notes_fit_groups_tokens_and_tls() -> None:
    given = laid_over(OPTIONS["groups"], laid_over(OPTIONS["TLS"], TOKENS))
    notes = Rendered.of(given).notes
    found = in_pods(notes)
    for verb in ("produce", "consume"):
        parameters = found[verb].parameters
        assert parameters["tls_ca"] is not None
        assert parameters["token"] == "TOKEN"
        assert list(parameters["proxy"].split(",")) == [f"{NAME}-proxy.default.svc:9713"]
    assert found["consume"].parameters["group"] == "billing"
    doctor = found["doctor"].parameters
    assert doctor["nameserver"] == ",".join(NAMESERVERS)
    assert doctor["http"] == f"{NAME}-proxy-http.default.svc:9714"
    (words,) = (each for each in commands(notes) if "doctor" in each)
    assert words[words.index("env") + 1 : words.index("orderlane")] == [
        "ORDERLANE_ADMIN_TOKEN=TOKEN",
        "ORDERLANE_ADMIN_CA=/tls/http/ca.crt",
        "ORDERLANE_BROKER_TLS__CA=/tls/brokers/ca.crt",
        "ORDERLANE_BROKER_TLS__VERIFY=ca",
    ]
    certified = laid_over(given, {"tls": {"thrift": {"clientCa": True}}})
    assert "--tls-certificate CERTIFICATE" in Rendered.of(certified).notes


# ---- helm test ----------------------------------------------------------------------------------


def checking(values: Mapping[str, Any]) -> dict[str, Any]:
    (pod,) = Rendered.of(values).all("Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["restartPolicy"] == "Never"
    return dict(pod["spec"])


def test_a_test_sends_a_message_and_consumes_it() -> None:
    spec = checking({})
    verbs = [typed(each["args"]) for each in (*spec["initContainers"], *spec["containers"])]
    assert [each.verb for each in verbs] == ["produce", "consume"]
    assert {each.parameters["proxy"] for each in verbs} == {f"{NAME}-proxy.default.svc:9713"}
    assert verbs[0].parameters["topic"] in verbs[1].parameters["topics"]
    assert Rendered.of({"tests": {"enabled": False}}).all("Pod") == []
    # It runs where proxies may run.
    assert checking(OPTIONS["a place for proxies"])["nodeSelector"] == {"disk": "ssd"}


def test_a_test_presents_its_token_and_checks_the_certificate() -> None:
    spec = checking(laid_over(OPTIONS["TLS"], OPTIONS["a token for the test"]))
    for container in (*spec["initContainers"], *spec["containers"]):
        (variable,) = container["env"]
        assert variable["name"] == "ORDERLANE_CLIENT_TOKEN"
        assert variable["valueFrom"]["secretKeyRef"] == {"name": "test-token", "key": "token"}
        assert str(typed(container["args"]).parameters["tls_ca"]) == "/tls/thrift/ca.crt"
        assert [each["mountPath"] for each in container["volumeMounts"]] == ["/tls/thrift"]
    (volume,) = spec["volumes"]
    assert [each["key"] for each in volume["secret"]["items"]] == ["ca.crt"]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(TOKENS, id="a token is needed"),
        pytest.param(USES["with Secrets"], id="a certificate is needed"),
        pytest.param(USES["on Apache RocketMQ"], id="topics are the user's"),
        pytest.param({"embedded": {"settings": {"auto_create_topics": False}}}, id="no topic"),
    ],
)
def test_otherwise_a_test_checks_the_ports(values: Mapping[str, Any]) -> None:
    spec = checking(values)
    assert "initContainers" not in spec
    (container,) = spec["containers"]
    assert container["args"] == [
        f"{NAME}-proxy.default.svc:9713",
        f"{NAME}-proxy-http.default.svc:9714",
    ]
    python, *script = container["command"]
    assert python == "python"  # in the image's PATH, like that of preStop
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        one.listen()
        ports = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]
        run = [sys.executable, *script, *ports]
        assert subprocess.run(run, check=False, timeout=60, capture_output=True).returncode == 1
        other.listen()
        assert subprocess.run(run, check=False, timeout=60, capture_output=True).returncode == 0
