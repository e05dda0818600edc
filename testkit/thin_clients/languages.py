"""Folder, build, tests and conformance program of each client."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testkit.processes import ROOT

#: Folders where a compiler looks for headers.
_INCLUDE = (Path("/usr/include"), Path("/usr/local/include"))
_CLIENTS = ROOT / "thin_client"


def _java() -> list[str]:
    folder = _CLIENTS / "java/target"
    paths = [folder / "test-classes", folder / "classes"]
    dependencies = (folder / "classpath.txt").read_text().strip()
    path = ":".join([*map(str, paths), dependencies])
    memory = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    program = "io.github.orderlane.client.conformance.ConformanceProgram"
    return ["java", *memory, "-cp", path, program]


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One client. Commands run in ``folder``."""

    name: str
    folder: Path
    #: Required commands, with the Debian packages that contain them.
    tools: Mapping[str, str] = field(default_factory=dict)
    #: Required headers, with the Debian packages that contain them.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The command that prints its version, and the minimum version.
    version: tuple[Sequence[str], tuple[int, int]] | None = None
    build: Sequence[Sequence[str]] = ()
    #: Builds only the conformance program, where that is less than ``build``.
    build_program: Sequence[Sequence[str]] = ()
    #: Its own unit tests. Python's run in ``make test``.
    tests: Sequence[Sequence[str]] = ()
    #: The conformance program, without its argument; known after the build.
    program: Callable[[], Sequence[str]]

    @property
    def missing(self) -> list[str]:
        """Return the Debian packages of missing tools."""
        absent = {package for tool, package in self.tools.items() if shutil.which(tool) is None}
        for header, package in self.headers.items():
            if not any((folder / header).exists() for folder in _INCLUDE):
                absent.add(package)
        return sorted(absent)

    @property
    def too_old(self) -> str | None:
        """Return the installed version if it is too old; otherwise None."""
        if self.version is None or self.missing:
            return None
        command, (major, minor) = self.version
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found = re.search(r"(\d+)\.(\d+)", said)
        if found is not None and (int(found[1]), int(found[2])) >= (major, minor):
            return None
        return f"{said.strip() or command[0]}: at least {major}.{minor} is needed"

    @property
    def is_there(self) -> bool:
        """False while its folder contains no client."""
        return self.folder.is_dir()


LANGUAGES = (
    Language(
        name="python",
        folder=ROOT,
        program=lambda: [sys.executable, "-m", "testkit.thin_clients.program"],
    ),
    Language(
        name="go",
        folder=_CLIENTS / "go",
        tools={"go": "golang-go"},
        version=(["go", "version"], (1, 23)),
        build=[["go", "build", "-p", "2", "-o", "build/conformance", "./internal/conformance"]],
        tests=[["go", "vet", "./..."], ["go", "test", "-p", "2", "./..."]],
        program=lambda: [str(_CLIENTS / "go/build/conformance")],
    ),
    Language(
        name="java",
        folder=_CLIENTS / "java",
        tools={"javac": "default-jdk-headless", "mvn": "maven"},
        build=[["mvn", "-q", "-B", "-ntp", "test-compile"]],
        tests=[["mvn", "-q", "-B", "-ntp", "test"]],
        program=_java,
    ),
    Language(
        name="node",
        folder=_CLIENTS / "node",
        tools={"node": "nodejs", "npm": "npm"},
        version=(["node", "--version"], (20, 0)),
        build=[
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
            ["npm", "run", "--silent", "build"],
        ],
        tests=[["npm", "test", "--silent"]],
        program=lambda: ["node", str(_CLIENTS / "node/dist/test/conformance.js")],
    ),
    Language(
        name="cpp",
        folder=_CLIENTS / "cpp",
        tools={"g++": "g++", "cmake": "cmake", "make": "make"},
        headers={
            "thrift/TProcessor.h": "libthrift-dev",
            "boost/numeric/conversion/cast.hpp": "libboost-dev",
            "openssl/ssl.h": "libssl-dev",
            "nlohmann/json.hpp": "nlohmann-json3-dev",
            "doctest/doctest.h": "doctest-dev",
        },
        build=[
            ["cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release"],
            ["cmake", "--build", "build", "-j2"],
        ],
        build_program=[
            ["cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release"],
            ["cmake", "--build", "build", "-j2", "--target", "conformance"],
        ],
        tests=[["ctest", "--test-dir", "build", "--output-on-failure"]],
        program=lambda: [str(_CLIENTS / "cpp/build/conformance")],
    ),
)


#: Messages of tools that could not download a dependency; they try only once.
_NETWORK = re.compile(
    r"Could not (?:transfer|resolve)|dial tcp|handshake timeout|i/o timeout|ETIMEDOUT|ECONNRESET"
)


class BuildFailed(Exception):
    """A build or its tests failed; the text ends with the output."""


def run(language: Language, commands: Sequence[Sequence[str]]) -> float:
    """Run *commands*; return the seconds. Raises BuildFailed."""
    began = time.monotonic()
    for command in commands:
        done = _run(language, command)
        if done.returncode != 0 and _NETWORK.search(done.stdout):
            done = _run(language, command)
        if done.returncode != 0:
            text = f"{language.name}: {' '.join(command)} ended with {done.returncode}"
            raise BuildFailed(f"{text}\n{excerpt(done.stdout)}")
    return time.monotonic() - began


def excerpt(output: str) -> str:
    """Return the failed tests in *output* of Node's runner, which lists all, and its end."""
    blocks = re.findall(r"^not ok .*\n(?:[ \t].*\n)*", output, re.MULTILINE)
    return "\n".join([*(block[:3000] for block in blocks), output[-6000:]])


def _run(language: Language, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=language.folder,
        env={**os.environ, "MAVEN_OPTS": "-Xmx256m"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def client_environment() -> dict[str, str]:
    """Return the driver's environment without settings of the gateway; Java gets a small heap."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("ORDERLANE_")}
    return {**own, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
