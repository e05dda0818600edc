"""A gateway from the wheels of this checkout, new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed_packages import Installation, install, started


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install(tmp_path_factory.mktemp("installation"))


@pytest.fixture
def gateway(installation: Installation, tmp_path: Path) -> Iterator[str]:
    """Its address."""
    ports = ("--thrift-port", "0", "--http-port", "0", "--nameserver-port", "0")
    words = ("up", "--data", str(tmp_path / "gateway"), *ports, "--broker-port", "0")
    with started(installation.python.with_name("orderlane"), *words) as ready:
        yield ready["thrift"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The empty folder of a reader."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder
