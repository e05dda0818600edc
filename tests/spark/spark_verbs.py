"""Verbs of ``orderlane spark`` run in the session shared by all tests, since a new one takes
seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import orjson
from typer.testing import CliRunner

from proxy.cli.spark_judging import app


def run_verb(spark: Any, *arguments: str, code: int = 0) -> Any:
    """Return the verb's output, parsed as JSON; its exit code must be *code*. Raises the verb's
    errors.
    """

    @contextmanager
    def job_session(*_: Any, **__: Any) -> Iterator[Any]:
        yield spark

    with patch("thin_client.spark.jobs.session.job_session", job_session):
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == code
    return orjson.loads(result.stdout)
