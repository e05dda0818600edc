"""The output shown in docs/order-keys.md is that of the command line for the reports next to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from proxy.cli import order_key
from proxy.cli.output import OutputFormat, print_rows
from proxy.tuning.report import TuningReport
from proxy.tuning.simulation import SimulationReport
from testkit.processes import ROOT
from tests.support.doc_words import PAGES, blocks_in, commands_in

PAGE = next(page for page in PAGES if page.name == "order-keys.md")


def report(kind: Any, name: str) -> Any:
    return TypeAdapter(kind).validate_json((ROOT / "docs/order-keys" / name).read_bytes())


LINT: TuningReport = report(TuningReport, "lint.json")
SIMULATION: SimulationReport = report(SimulationReport, "simulate.json")


def shown_by(verb: str) -> tuple[str, ...]:
    """Return the table below the command."""
    (command,) = [each for each in commands_in(PAGE) if f"order-key {verb} " in each.text]
    return command.shown


def sentences() -> list[tuple[str, ...]]:
    """Return the blocks that contain only text."""
    return [block.lines for block in blocks_in(PAGE) if not block.language and not block.prompted]


@pytest.mark.parametrize(
    ("verb", "rows", "columns"),
    [
        ("lint", lambda: list(map(order_key.lint_row, LINT.candidates)), order_key.LINT_COLUMNS),
        ("simulate", lambda: order_key.simulated_rows(SIMULATION), order_key.SIMULATION_COLUMNS),
    ],
)
def test_tables_are_those_of_the_reports(
    verb: str,
    rows: Callable[[], list[dict[str, Any]]],
    columns: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_rows(rows(), columns=columns, output=OutputFormat.TABLE)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed == [line.split() for line in shown_by(verb)]


def test_sentences_are_those_of_the_reports() -> None:
    printed = {*order_key.lint_sentences(LINT), *order_key.simulation_sentences(SIMULATION)}
    lint, simulation = sentences()[:2]
    assert set(lint) < printed
    assert list(simulation) == list(order_key.simulation_sentences(SIMULATION))
