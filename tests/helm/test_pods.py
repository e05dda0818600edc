"""The containers of the chart as processes of this machine: their arguments and settings work."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from testkit.processes import Child, wait_until
from tests.helm.image import Image, environment
from tests.helm.rendering import NAME, NAMESERVERS, Rendered

#: The first test builds the image: packages are downloaded, verified and built.
pytestmark = pytest.mark.timeout(300)
#: A small log, since each segment is allocated as a whole.
SMALL = {"segment_bytes": 5_000_000}
VALUES: dict[str, Any] = {
    "groups": [{"name": "billing", "topics": [{"name": "orders", "order_key": "KEY"}]}],
    "embedded": {"settings": SMALL},
}
PORTS = {"nameserver": 9876, "broker": 10911, "metrics": 10914, "thrift": 9713, "http": 9714}


class Pods:
    """A release on loopback: each port of the chart is a free one of this machine."""

    def __init__(self, image: Image, folder: Path, values: Mapping[str, Any]) -> None:
        self.rendered = Rendered.of(values)
        self.ports = _free_ports((*PORTS, "away"))
        self.children: dict[str, Child] = {}
        self._image, self._folder = image, folder

    def start(self, component: str) -> Child:
        """Start the container of *component* as its pod would."""
        container = self.rendered.container(component)
        folder = self._folder / component
        folder.mkdir(exist_ok=True)
        if component != "nameserver":
            config = self.rendered.one("ConfigMap", f"{NAME}-{component}")["data"]
            for name, text in config.items():
                (folder / name).write_text(self._here(text, folder))
        variables = self.rendered.environment(component)
        command = [str(self._image.entrypoint)]
        command += [self._here(str(each), folder) for each in container["args"]]
        child = Child(command, folder / "container", environment(**variables))
        self.children[component] = child
        child.ready()
        return child

    def start_replicas(self) -> None:
        """Start the pods of brokers with replicas, each with its file."""
        texts = self.rendered.broker_settings()
        ports, metrics = _free_ports(texts), _free_ports(texts)
        arguments = self.rendered.container("broker")["args"]
        for pod, text in texts.items():
            folder = self._folder / pod
            folder.mkdir()
            text = text.replace("0.0.0.0:10911", f"127.0.0.1:{ports[pod]}")
            text = text.replace("0.0.0.0:10914", f"127.0.0.1:{metrics[pod]}")
            for other, port in ports.items():
                text = text.replace(f"{other}.{NAME}-broker:10911", f"127.0.0.1:{port}")
            (folder / f"{pod}.yaml").write_text(self._here(text, folder))
            command = [str(self._image.entrypoint)]
            command += [self._here(each, folder).replace("$(POD_NAME)", pod) for each in arguments]
            self.children[pod] = Child(command, folder / "container", environment())
        for pod in texts:
            self.children[pod].ready()

    def probe(self, component: str, name: str) -> bool:
        """Return whether that probe passes now."""
        probe = self.rendered.container(component)[f"{name}Probe"]
        if "tcpSocket" in probe:
            with socket.socket() as one:
                return one.connect_ex(self._at(probe["tcpSocket"]["port"])) == 0
        host, port = self._at(probe["httpGet"]["port"])
        try:
            with urllib.request.urlopen(
                f"http://{host}:{port}{probe['httpGet']['path']}", timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False

    def run(self, *arguments: str) -> str:
        """Return the output of a command in a pod, which must succeed."""
        return self._image.run(*(self._here(each, self._folder) for each in arguments))

    def wait_for_replicas(self, count: int) -> None:
        """Wait until *count* replicas are in sync."""
        asked = ("brokers", "ls", "-o", "json", "--http", f"127.0.0.1:{self.ports['http']}")

        def in_sync() -> bool:
            rows = orjson.loads(self.run(*asked))
            return count in [len(row["in_sync"].split(",")) for row in rows if row["in_sync"]]

        wait_until(in_sync, within_s=120, what=f"{count} replicas in sync")

    @property
    def thrift(self) -> str:
        return f"127.0.0.1:{self.ports['thrift']}"

    def _at(self, port: str) -> tuple[str, int]:
        return "127.0.0.1", self.ports[port]

    def _here(self, text: str, folder: Path) -> str:
        for name, port in PORTS.items():
            text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{self.ports[name]}")
        # One of two nameservers suffices: nothing listens where the second one would be.
        others = {
            NAMESERVERS[0]: "nameserver",
            NAMESERVERS[1]: "away",
            f"{NAME}-proxy.default.svc:9713": "thrift",
        }
        for address, name in others.items():
            text = text.replace(address, f"127.0.0.1:{self.ports[name]}")
        return text.replace("/etc/orderlane", str(folder)).replace("/data", str(folder / "data"))


@contextmanager
def release(image: Image, folder: Path, values: Mapping[str, Any] = VALUES) -> Iterator[Pods]:
    pods = Pods(image, folder, values)
    try:
        yield pods
    finally:
        for child in pods.children.values():
            child.kill()


def test_the_pods_serve_and_pass_their_probes(image: Image, tmp_path: Path) -> None:
    with release(image, tmp_path) as pods:
        for component in ("nameserver", "broker", "proxy"):
            pods.start(component)
        for component in pods.children:
            for name in ("liveness", "readiness"):
                wait_until(
                    lambda component=component, name=name: pods.probe(component, name),
                    within_s=30,
                    what=f"{name} of {component}",
                )
        lines = b"".join(b"k%d\tn%d\n" % (n % 3, n) for n in range(30))
        image.run("produce", "orders", "--keyed", "--proxy", pods.thrift, stdin=lines)
        text = image.run("consume", "billing", "--count", "30", "--proxy", pods.thrift)
        got = [orjson.loads(line) for line in text.splitlines()]
        got = [each for each in got if "body" in each]
        for key in ("k0", "k1", "k2"):
            numbers = [int(each["body"][1:]) for each in got if each["key"] == key]
            assert numbers == sorted(numbers)
        assert len(got) == 30
        assert {each["queue"].rpartition("_")[0] for each in got} == {f"{NAME}-broker-0"}

        # A temporary outage of a dependency must not restart all proxies.
        pods.children["nameserver"].kill()
        pods.children["broker"].kill()
        assert pods.probe("proxy", "readiness")
        assert pods.probe("proxy", "liveness")
        pods.start("nameserver")
        pods.start("broker")
        image.run("produce", "orders", "--count", "5", "--proxy", pods.thrift)
        image.run("consume", "billing", "--count", "5", "--quiet", "--proxy", pods.thrift)
        assert pods.children["proxy"].terminate() == 0


def test_the_first_commands_after_an_installation_work(image: Image, tmp_path: Path) -> None:
    """Those of NOTES and of `helm test`, on a default installation."""
    with release(image, tmp_path, {"embedded": {"settings": SMALL}}) as pods:
        for component in ("nameserver", "broker", "proxy"):
            pods.start(component)
        spec = pods.rendered.one("Pod", f"{NAME}-test")["spec"]
        for container in (*spec["initContainers"], *spec["containers"]):
            pods.run(*container["args"])
        lines = [line for line in pods.rendered.notes.splitlines() if " -- orderlane " in line]
        assert len(lines) == 2
        for line in lines:
            # In the pod, the port is the default.
            pods.run(*line.partition(" -- orderlane ")[2].split(), "--proxy", pods.thrift)


def test_replicas_elect_a_master_and_one_may_be_away(image: Image, tmp_path: Path) -> None:
    values = {"embedded": {"settings": SMALL, "replication": {"mode": "elected"}}}
    with release(image, tmp_path, values) as pods:
        pods.start("nameserver")
        pods.start_replicas()
        pods.start("proxy")
        clients = ("--proxy", pods.thrift)
        pods.run("produce", "orders", "--count", "5", "--timeout", "60", *clients)
        pods.wait_for_replicas(3)  # a replica that is not in sync is not elected
        pods.children[f"{NAME}-broker-0-2"].kill()
        pods.run("produce", "orders", "--count", "5", "--timeout", "60", *clients)
        text = pods.run("consume", "billing", "orders", "--count", "10", *clients)
        got = [orjson.loads(line) for line in text.splitlines()]
        queues = {each["queue"].rpartition("_")[0] for each in got if "body" in each}
        assert queues == {f"{NAME}-broker-0"}


def test_a_proxy_is_ready_once_it_has_found_a_nameserver(image: Image, tmp_path: Path) -> None:
    with release(image, tmp_path) as pods:
        pods.start("proxy")
        assert not pods.probe("proxy", "readiness")
        assert pods.probe("proxy", "liveness")
        pods.start("nameserver")
        wait_until(lambda: pods.probe("proxy", "readiness"), within_s=30, what="ready")


def test_what_a_pod_does_before_it_stops_is_in_the_image(image: Image) -> None:
    container = Rendered.of({"proxy": {"preStopSeconds": 1}}).container("proxy")
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    path = f"{image.folder / 'bin'}"  # as in ENV, without a shell's
    assert "PATH=/opt/orderlane/bin:" in image.last["ENV"]
    before = time.monotonic()
    subprocess.run([f"{path}/{command[0]}", *command[1:]], check=True, timeout=60, env={})
    assert time.monotonic() - before >= 1


def test_the_image_is_slim_and_no_root(image: Image) -> None:
    assert image.last["USER"] == "10001:10001"
    assert image.last["FROM"].endswith("-slim")
    installed = {path.name for path in image.folder.glob("lib/python*/site-packages/*")}
    assert {"orderlane", "orderlane_server", "thin_client", "thrift_idl", "redis"} <= installed
    assert not {"tests", "pytest", "pyspark", "mypy", "bench", "proxy", "testkit"} & installed


def test_the_modules_of_the_image_are_compiled(image: Image) -> None:
    (packages,) = image.folder.glob("lib/python*/site-packages")
    for module in ("orderlane_server/proxy/app.py", "thin_client/aio.py", "orjson/__init__.py"):
        path = packages / module
        assert list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")), module


def test_a_published_port_of_the_image_reaches_its_gateway(image: Image) -> None:
    written = re.search(r"printf '(.+)' > (\S+)", image.last["RUN"])
    assert written is not None
    settings = yaml.safe_load(written[1].encode().decode("unicode_escape"))
    assert settings == {"listen": {"thrift": "0.0.0.0:9713"}}
    assert written[2] in image.last["CMD"]


def test_the_image_s_health_check_finds_any_role(image: Image) -> None:
    command = orjson.loads(image.last["HEALTHCHECK"].partition("CMD ")[2])
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        number = str(port.getsockname()[1])
        script = command[2].replace("9714, 10911, 9876", f"{number},")
        run = [sys.executable, "-c", script]
        assert subprocess.run(run, check=False, timeout=60).returncode == 1
        port.listen()
        assert subprocess.run(run, check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("port", PORTS.values())
def test_the_image_says_which_ports_it_serves(image: Image, port: int) -> None:
    assert str(port) in image.last["EXPOSE"].split()


def _free_ports(names: Iterable[str]) -> dict[str, int]:
    sockets = {name: socket.socket() for name in names}
    for one in sockets.values():
        one.bind(("127.0.0.1", 0))
    ports = {name: one.getsockname()[1] for name, one in sockets.items()}
    for one in sockets.values():
        one.close()
    return ports
