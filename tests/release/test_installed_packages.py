"""Both distributions in an empty environment, and the client's tests in its source archive.

The environment also has a foreign distribution with names of the repository.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.doc_commands import blocks_of
from tests.support.installed_packages import Installation, install, run, started
from tools.pins import ROOT
from tools.release import builds

pytestmark = pytest.mark.timeout(900)

#: Pages with whole programs in Python.
PAGES = ("README.md", "thin_client/README.md", "docs/python-client.md", "docs/getting-started.md")
#: As proxy.py: a distribution with packages of our names in the repository.
FOREIGN = ("proxy", "broker_core")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installation")
    return install(folder, foreign_wheel(folder))


def foreign_wheel(folder: Path) -> Path:
    """Make a distribution with packages of the names in FOREIGN."""
    wheel = folder / "foreign-1.0-py3-none-any.whl"
    about = "foreign-1.0.dist-info"
    files = {f"{name}/__init__.py": f"OWNER = 'foreign {name}'\n" for name in FOREIGN}
    files[f"{about}/METADATA"] = "Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n"
    files[f"{about}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return wheel


def names_at_the_top(wheel: Path) -> set[str]:
    names = {name.partition("/")[0] for name in builds.contents(wheel)}
    return {name for name in names if not name.endswith(".dist-info")}


def test_the_client_has_no_code_of_the_server(installation: Installation) -> None:
    client = names_at_the_top(installation.client.wheel)
    assert client == {"orderlane", "thin_client", "thrift_idl", "pyspark_orderlane.py"}
    assert names_at_the_top(installation.server.wheel) == {"orderlane_server"}


def test_packages_of_the_repositorys_names_keep_working(installation: Installation) -> None:
    code = "import proxy, broker_core; print(proxy.OWNER, broker_core.OWNER)"
    assert installation.run("-c", code).stdout == "foreign proxy foreign broker_core\n"


def test_a_gateway_and_a_client_work_beside_them(installation: Installation) -> None:
    code = """
import proxy
from orderlane import Consumer, Producer
from orderlane.testing import Gateway

seen = []
with Gateway() as gateway, Producer(gateway.address) as producer:
    producer.send("orders", "hello", key="a")
    consumer = Consumer(gateway.address, group="billing", topics=["orders"])

    def handle(message):
        seen.append(message.body.decode())
        consumer.stop()

    consumer.run(handle)
print(proxy.OWNER, *seen)
"""
    done = installation.run("-c", code)
    assert done.stdout.splitlines()[-1:] == ["foreign proxy hello"], done.stdout + done.stderr


def test_the_command_starts_its_processes(installation: Installation, tmp_path: Path) -> None:
    """Workers are processes of their own, started by the name of their module."""
    command = installation.python.with_name("orderlane")
    ports = ("--thrift-port", "0", "--http-port", "0", "--nameserver-port", "0")
    words = ("up", "--data", str(tmp_path / "data"), "--workers", "2", *ports)
    with started(command, *words, "--broker-port", "0") as ready:
        sent = run(
            *(command, "produce", "orders", "--count", 3, "--proxy", ready["thrift"]),
            folder=tmp_path,
        )
        assert sent.returncode == 0, sent.stderr
        page = run(
            installation.python,
            *("-c", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)"),
            f"http://{ready['http']}/",
            folder=tmp_path,
        )
        assert page.stdout == "200\n", page.stderr


def programs() -> list[tuple[str, str]]:
    return [
        (f"{page.replace('/', '_').removesuffix('.md')}_{block.line}", block.text)
        for page in PAGES
        for block in blocks_of(page, (ROOT / page).read_text())
        if block.language == "python" and "import" in block.text
    ]


def test_documented_programs_pass_a_strict_type_check(
    installation: Installation, tmp_path: Path
) -> None:
    files = []
    for name, text in programs():
        files.append(tmp_path / f"{re.sub(r'[^a-z0-9]', '_', name)}.py")
        files[-1].write_text(text)
    assert len(files) >= 6
    done = run(
        *(sys.executable, "-m", "mypy", "--strict", "--python-executable", installation.python),
        *("--cache-dir", tmp_path / "cache", *files),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stdout


def test_the_version_is_printed(installation: Installation) -> None:
    command = installation.python.with_name("orderlane")
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert version is not None
    done = run(command, "--version", folder=installation.folder)
    assert done.stdout == f"orderlane {version[1]}\n"


@pytest.mark.slow
def test_the_source_archive_passes_the_clients_tests(
    installation: Installation, tmp_path: Path
) -> None:
    """The faster ones; it also has tests/property and tests/integration/thin_client."""
    with tarfile.open(installation.client.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (sources,) = tmp_path.iterdir()
    done = run(
        *(sys.executable, "-P", "-m", "pytest", "-n", "auto", "-q", "-m", "not slow"),
        *("tests/unit/thin_client", "tests/unit/orderlane", "tests/integration/orderlane"),
        folder=sources,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert (
        str(sources)
        in run(
            *(sys.executable, "-c", "import thin_client; print(thin_client.__file__)"),
            folder=sources,
        ).stdout
    )
