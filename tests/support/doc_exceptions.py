"""Documented commands that no test runs, with the reason; all others are run.

A command matches a row if it begins with its words. A row that matches no command is stale.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.doc_commands import Command, parts_of

_MEASURES = (
    "measures for minutes or hours; tests/integration/bench/test_bench.py runs such cases small"
)
_JAVA = "needs Spark and Java: make test-spark runs it, and the rest of docs/spark.md"

NOT_RUN: dict[tuple[str, ...], str] = {
    ("make", "setup-run"): "installs from a package registry; tests/unit/tools has its parts",
    ("make", "test"): "that is this very run",
    ("make", "demo"): "53,472 flights take a minute; tests/integration/cli/test_demo.py runs fewer",
    ("make", "bench"): _MEASURES,
    ("make", "bench-full"): _MEASURES,
    ("make", "soak"): "takes 20 minutes; tests/integration/bench/test_soak.py runs a short one",
    ("orderlane", "bench"): _MEASURES,
    ("python", "-m", "bench.coefficients"): "takes ten minutes",
    (
        "python",
        "-m",
        "bench.simulation",
    ): "takes hours; tests/property/bench/test_simulation.py is small",
    (
        "python",
        "-m",
        "tools.tables",
    ): "writes the documents; tests/unit/documents/test_docs.py reads",
    ("python3", "-m", "venv"): "the test has an interpreter with the client already",
    ("venv/bin/pip", "install"): "asks a package registry for thrift",
    (".", ".venv/bin/activate"): "the test has an interpreter with all of it already",
    ("pip", "install"): "asks a package registry",
    ("docker",): "needs docker; tests/helm checks what the Dockerfile puts into the image",
    ("helm",): "needs Kubernetes; make helm-check renders the chart with the values of the page",
    ("spark-submit",): _JAVA,
    ("orderlane", "spark", "archive"): _JAVA,
    ("orderlane", "spark", "backfill"): _JAVA,
    ("orderlane", "spark", "compact"): _JAVA,
    ("orderlane", "spark", "key-profile"): _JAVA,
}


def row_of(command: Command) -> tuple[str, ...] | None:
    """Return the row that matches one of the programs of *command*."""
    for part in parts_of(command.text):
        for row in NOT_RUN:
            if part.words[: len(row)] == row:
                return row
    return None


def stale_rows(commands: Sequence[Command]) -> set[tuple[str, ...]]:
    """Return the rows that match none of *commands*."""
    return NOT_RUN.keys() - {row_of(command) for command in commands}
