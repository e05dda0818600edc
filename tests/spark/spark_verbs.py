"""Verbs of ``orderlane spark`` in the session that all tests share: a new one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import orjson
from typer.testing import CliRunner

from proxy.cli.spark_judging import app


def run_verb(spark: Any, *arguments: str, code: int = 0) -> Any:
    """What the verb prints, as JSON; its exit code is *code*. Raises what the verb raises."""

    @contextmanager
    def job_session(*_: Any, **__: Any) -> Iterator[Any]:
        yield spark

    with patch("thin_client.spark.jobs.session.job_session", job_session):
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == code
    return orjson.loads(result.stdout)
