"""One gateway and one Spark session for all tests here, since each takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.spark_site import SparkGateway, spark_gateway, spark_session


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the long form: more kills, more rows")
    parser.addoption("--kills", type=int, help="kills of a driver (default: 3, with --full 10)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        long = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether ``--full`` was given."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="session")
def kills(request: pytest.FixtureRequest, full: bool) -> int:
    """Return the number of times that a test kills its driver."""
    given: int | None = request.config.getoption("--kills")
    return given or (10 if full else 3)


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkGateway]:
    with spark_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("spark")
    with spark_session(folder) as session:
        yield session
