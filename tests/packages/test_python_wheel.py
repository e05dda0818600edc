"""The Python wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.pages import USUAL, Page
from tests.packages.projects import ORDERS, serve_orders
from tests.support.installed_packages import Installation

pytestmark = [pytest.mark.sockets, pytest.mark.timeout(900)]

PAGE = "thin_client/README.md"


def test_the_program_of_the_readme(installation: Installation, gateway: str, project: Path) -> None:
    (program,) = (each for each in Page(PAGE, gateway).blocks if each.language == "python")
    (project / "billing.py").write_text(program.text.replace(USUAL, gateway))
    orders = [(key, body) for key, body in ORDERS if body.startswith("{")]
    serve_orders([str(installation.python), str(project / "billing.py")], project, gateway, orders)


def test_the_program_for_those_who_come_from_aiokafka(
    installation: Installation, gateway: str, project: Path
) -> None:
    Page("docs/from-aiokafka.md", gateway).write(project)
    serve_orders([str(installation.python), str(project / "billing.py")], project, gateway)


def test_the_program_for_those_who_come_from_sqs(
    installation: Installation, gateway: str, project: Path
) -> None:
    Page("docs/from-aiokafka.md", gateway).write(project)
    serve_orders([str(installation.python), str(project / "worker.py")], project, gateway)
