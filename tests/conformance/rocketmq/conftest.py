"""The suite against Apache RocketMQ: its client with our broker, its brokers beside ours.

``make conformance-rocketmq`` runs it, and the proxy's integration tests with its brokers. A test
receives its version by the parameter ``version`` (``tests/conftest.py`` makes the table).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.java import require_java
from tests.conformance.rocketmq.java_client import JavaClients


@pytest.fixture(scope="session", autouse=True)
def _java() -> None:
    require_java()


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rocketmq")


@pytest.fixture(scope="session")
def java_clients(work: Path) -> Iterator[JavaClients]:
    with JavaClients(work) as clients:
        yield clients
