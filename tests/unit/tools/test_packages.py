"""Names of the server's packages in an installation, and the sources of its distribution."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tools.packages.mapping import MOVED, MappingError, mapped
from tools.packages.server_sources import ROOT, installed, requirements, write_sources


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from proxy.app import Proxy\n", "from orderlane_server.proxy.app import Proxy\n"),
        ("from proxy import cli\n", "from orderlane_server.proxy import cli\n"),
        ("import broker_core.clock as c\n", "import orderlane_server.broker_core.clock as c\n"),
        (
            "import broker_core.clock\n",
            "import orderlane_server.broker_core.clock; from orderlane_server import broker_core\n",
        ),
        (
            "if 1:\n    from testkit.simulation import (\n        X,\n    )\n",
            "if 1:\n    from orderlane_server.testkit.simulation import (\n        X,\n    )\n",
        ),
        ("é = 1; from proxy import x\n", "é = 1; from orderlane_server.proxy import x\n"),
        ("from proxy_tools import x\n", "from proxy_tools import x\n"),
        ("from thin_client import proxy\n", "from thin_client import proxy\n"),
        ('name = "proxy"\n', 'name = "proxy"\n'),
        ('name = "proxy.example"\n', 'name = "proxy.example"\n'),
    ],
)
def test_imports_have_the_names_of_an_installation(before: str, after: str) -> None:
    assert mapped(before, "a.py") == after
    assert mapped(after, "a.py") == after
    assert before.count("\n") == after.count("\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import proxy.app, proxy.cli\n", "a.py:1: import one module per line"),
        ("x = 1\nfrom proxy \\\n    .app import Proxy\n", "a.py:2: import one module per line"),
        ('run("proxy.cli")\n', "a.py:1: 'proxy.cli' has another name in an installation: derive"),
    ],
)
def test_what_cannot_be_moved_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(MappingError, match=re.escape(sentence)):
        mapped(text, "a.py")


def test_the_sources_of_the_server_name_no_package_of_the_repository(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    write_sources(ROOT, folder)
    files = list(folder.rglob("*.py"))
    assert len(files) > 700
    assert {each.name for each in folder.iterdir()} == {
        *("LICENSE", "README.md", "orderlane_server", "pyproject.toml", "requirements.txt"),
    }
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            assert [each for each in names if each.partition(".")[0] in MOVED] == [], file
    with pytest.raises(FileExistsError):
        write_sources(ROOT, folder)


def test_the_server_has_what_its_simulated_machine_imports(tmp_path: Path) -> None:
    write_sources(ROOT, tmp_path / "server")
    testkit = tmp_path / "server/orderlane_server/testkit"
    for file in testkit.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "orderlane_server.testkit."
            ):
                path = tmp_path.joinpath("server", *node.module.split("."))  # type: ignore[union-attr]
                assert path.with_suffix(".py").is_file(), f"{file}: {node.module}"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("proxy/app.py", "orderlane_server/proxy/app.py"),
        ("proxy/py.typed", "orderlane_server/proxy/py.typed"),
        (
            "proxy/console/static/index.html",
            "orderlane_server/proxy/console/static/index.html",
        ),
        ("testkit/simulation/loop.py", "orderlane_server/testkit/simulation/loop.py"),
        (
            "tools/packages/server/orderlane_server/__init__.py",
            "orderlane_server/__init__.py",
        ),
        ("testkit/gateway.py", None),
        ("testkit/simulation/world.py", None),
        ("thin_client/aio.py", None),
        ("tests/unit/test_app.py", None),
    ],
)
def test_the_server_consists_of_its_packages(path: str, place: str | None) -> None:
    assert installed(path) == place


def test_the_server_requires_its_client_and_the_group_of_the_repository() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    client, *others = requirements(text)
    about = tomllib.loads(text)
    assert client == f"orderlane=={about['project']['version']}"
    assert others == about["dependency-groups"]["server"]
