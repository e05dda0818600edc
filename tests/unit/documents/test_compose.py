"""The services of docs/compose: commands, settings, mounts and addresses fit together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.cli.servers import load_broker_settings
from proxy.settings.proxy_settings import Settings, load_settings
from testkit.processes import ROOT
from tests.metrics.monitoring import ALERTS, DASHBOARD
from tests.support.cli_words import Typed, typed

FOLDER = ROOT / "docs/compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN = [name for name, service in SERVICES.items() if "build" in service]
PORTS = {"nameserver": 9876, "broker": 10911, "proxy": 9713, "prometheus": 9090, "grafana": 3000}
own = pytest.mark.parametrize("service", OWN)


def command(service: str) -> Typed:
    return typed([str(word) for word in SERVICES[service]["command"]])


def binds(service: str) -> dict[str, Path]:
    """Return the mounted files and folders of the repository by their paths in the container."""
    found = {}
    for each in SERVICES[service].get("volumes", ()):
        source, target, *mode = each.split(":")
        if source.startswith("."):
            assert mode == ["ro"]
            found[target] = Path(os.path.normpath(FOLDER / source))
    return found


def file_in(service: str, path: str) -> Path:
    """Return the file of the repository that the container has at *path*."""
    (file,) = (
        source if target == path else source / path.removeprefix(f"{target}/")
        for target, source in binds(service).items()
        if path == target or path.startswith(f"{target}/")
    )
    assert file.is_file()
    return file


def proxy_settings() -> Settings:
    path = str(command("proxy").parameters["settings"])
    environment = SERVICES["proxy"].get("environment", {})
    return load_settings(file_in("proxy", path), environment=environment)


def test_gateway_clients_and_monitoring_are_there() -> None:
    assert OWN == ["nameserver", "broker", "proxy", "producer", "consumer"]
    assert set(SERVICES) - set(OWN) == {"prometheus", "grafana"}


@own
def test_a_command_is_one_of_the_command_line(service: str) -> None:
    verb = {"producer": "produce", "consumer": "consume"}.get(service, service)
    assert command(service).verb == verb


@own
def test_the_image_is_that_of_the_dockerfile_with_the_version_of_the_project(service: str) -> None:
    assert (FOLDER / SERVICES[service]["build"] / "Dockerfile").is_file()
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{SERVICES[service]["image"].removeprefix("orderlane:")}"' in project


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_mounted_exists(service: str) -> None:
    for source in binds(service).values():
        assert source.exists()
    volumes = [each.split(":")[0] for each in SERVICES[service].get("volumes", ())]
    named = {each for each in volumes if not each.startswith(".")}
    assert named <= COMPOSE["volumes"].keys()


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_published_on_loopback(service: str) -> None:
    for port in SERVICES[service].get("ports", ()):
        address, published, inside = port.split(":")
        assert (address, published) == ("127.0.0.1", inside)


def test_services_listen_where_others_look_for_them(tmp_path: Path) -> None:
    assert command("nameserver").parameters["listen"] == f"0.0.0.0:{PORTS['nameserver']}"
    given = command("broker").parameters
    options = {name: given[name] for name in ("data", "listen", "http", "nameserver")}
    environment = SERVICES["broker"]["environment"]
    assert environment == {"ORDERLANE_BROKER__AUTO_CREATE_TOPICS": "true"}
    broker = load_broker_settings(None, options, data=tmp_path)
    assert (broker.listen, broker.nameserver) == ("0.0.0.0:10911", ("nameserver:9876",))
    assert broker.http == "0.0.0.0:10914"
    assert command("proxy").parameters["nameserver"] == "nameserver:9876"
    settings = proxy_settings()
    assert (settings.listen.thrift, settings.listen.http) == ("0.0.0.0:9713", "0.0.0.0:9714")
    for client in ("producer", "consumer"):
        assert command(client).parameters["proxy"] == "proxy:9713"


def test_data_is_on_volumes() -> None:
    for service in ("nameserver", "broker"):
        folder = str(command(service).parameters["data"])
        assert f"{service}:{folder}" in SERVICES[service]["volumes"]


def test_the_consumer_is_of_a_group_that_the_proxy_serves() -> None:
    (group,) = proxy_settings().groups
    consumer = command("consumer").parameters
    assert (consumer["group"], list(consumer["topics"])) == (
        group.name,
        [topic.name for topic in group.topics],
    )
    assert command("producer").parameters["topic"] in consumer["topics"]


def test_services_wait_for_those_that_report_their_health() -> None:
    awaited = set()
    for name in OWN:
        for other, condition in SERVICES[name].get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            awaited.add(other)
    # The image's own check finds the port of a server; a client has none.
    checked = {name for name in OWN if "healthcheck" not in SERVICES[name]}
    assert awaited == checked == {"nameserver", "broker", "proxy"}


def test_prometheus_scrapes_proxy_and_broker_and_has_the_alert_rules() -> None:
    config = yaml.safe_load(file_in("prometheus", "/etc/prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["proxy:9714", "broker:10914"]}]
    (rules,) = config["rule_files"]
    assert file_in("prometheus", f"/etc/prometheus/{rules}") == ALERTS


def test_grafana_has_the_dashboard_and_a_source_for_it() -> None:
    provisioning = "/etc/grafana/provisioning"
    mounted = [Path(path) for path in binds("grafana")]
    found = {
        kind: yaml.safe_load(file_in("grafana", str(path)).read_text())
        for kind in ("datasources", "dashboards")
        for path in mounted
        if path.parent == Path(provisioning, kind)
    }
    (source,) = found["datasources"]["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert source["url"] == f"http://prometheus:{PORTS['prometheus']}"
    (provider,) = found["dashboards"]["providers"]
    (board,) = (path for path in mounted if str(path.parent) == provider["options"]["path"])
    assert file_in("grafana", str(board)) == DASHBOARD
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    kinds = [each["query"] for each in variables if each["type"] == "datasource"]
    assert kinds == [source["type"]]
