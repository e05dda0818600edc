"""Code outside the core changes pipelines, leases and jobs by methods, never by assignment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from proxy.core.jobs.jobs import Jobs
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.parking.copy_intake import CopyIntake
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.parking.twin_pipeline import TwinPipeline
from proxy.core.pipeline.intake import Intake
from proxy.core.pipeline.queue_pipeline import QueuePipeline

PROXY = Path(__file__).resolve().parents[3] / "proxy"
#: Names that other modules use for objects of the core.
OWNED = {"pipeline", "_pipeline", "twin", "origin", "lease", "job", "jobs", "leases", "parking"}


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Return attributes of such objects that are assigned or deleted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            of = node.value
            name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
            if name in OWNED:
                yield node


def test_nothing_of_the_core_is_assigned_to_from_outside() -> None:
    found = [
        f"{path.relative_to(PROXY)}:{each.lineno}: {ast.unparse(each)}"
        for path in sorted(PROXY.rglob("*.py"))
        if path.relative_to(PROXY).parts[0] not in ("core", "history")
        for each in assigned(ast.parse(path.read_text()))
    ]

    assert found == []


def test_an_assignment_would_be_found() -> None:
    tree = ast.parse("pipeline.doubtful = True\nself._pipeline.twin = None\nself.pipeline = made\n")

    assert [ast.unparse(each) for each in assigned(tree)] == [
        "pipeline.doubtful",
        "self._pipeline.twin",
    ]


def test_pipelines_are_composed_and_inherit_one_level_at_most() -> None:
    for kind in (ParkingPipeline, TwinPipeline):
        assert kind.__mro__ == (kind, QueuePipeline, object)
    assert CopyIntake.__mro__ == (CopyIntake, Intake, object)
    assert QueuePipeline.__bases__ == Jobs.__bases__ == LeaseBook.__bases__ == (object,)
