"""The public package has the client's API, and all parts have one version."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import orderlane
import thin_client

ROOT = Path(__file__).resolve().parents[3]


def project(path: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / path).read_text())["project"]
    return table


def test_it_exports_what_the_client_exports() -> None:
    assert set(orderlane.__all__) == {*thin_client.__all__, "__version__"}
    for name in thin_client.__all__:
        assert getattr(orderlane, name) is getattr(thin_client, name)


def test_client_and_server_have_one_version() -> None:
    client, server = project("pyproject.toml"), project("tools/packages/server/pyproject.toml")
    version = orderlane.__version__
    assert (client["version"], server["version"]) == (version, version)
    assert client["optional-dependencies"]["server"] == [f"orderlane-server=={version}"]


def test_both_descriptions_of_the_project_agree() -> None:
    client, server = project("pyproject.toml"), project("tools/packages/server/pyproject.toml")
    for field in ("requires-python", "license", "license-files", "authors", "urls"):
        assert client[field] == server[field], field
    pythons = [each for each in client["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert len(pythons) == 4
    assert set(pythons) <= set(server["classifiers"])


#: An installation of the client alone.
WITHOUT_SERVER = """
import sys
from importlib.abc import MetaPathFinder

class NoServer(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "proxy":
            raise ModuleNotFoundError("No module named 'proxy'", name=name)

sys.meta_path.insert(0, NoServer())
from orderlane.command_line import run
run()
"""


def command_line(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command with these *words* in an installation of the client alone."""
    command = [sys.executable, "-c", WITHOUT_SERVER, *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_the_version_needs_no_server() -> None:
    done = command_line("--version")
    assert (done.returncode, done.stdout) == (0, f"orderlane {orderlane.__version__}\n")


def test_without_the_server_the_command_line_names_the_extra() -> None:
    done = command_line("up")
    assert done.returncode == 2
    assert done.stderr == (
        "orderlane: proxy is not installed: the command line needs the extra 'server', as in pip"
        " install 'orderlane[server]'\n"
    )
