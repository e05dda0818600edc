"""Files of Spark's file systems, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from thin_client.spark.lake.files import delete
from thin_client.spark.option_values import OptionError


def session_without_permission(*there: str) -> Any:
    """Return a session whose file system has the paths *there*, and deletes none: it returns false,
    as a local one does.
    """
    files = SimpleNamespace(delete=lambda _, __: False, exists=lambda place: place.path in there)

    def place(path: str) -> Any:
        return SimpleNamespace(path=path, getFileSystem=lambda _: files)

    apache = SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=place)))
    java = SimpleNamespace(org=SimpleNamespace(apache=apache))
    settings = SimpleNamespace(hadoopConfiguration=lambda: None)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=java, _jsc=settings))


def test_a_folder_that_stays_is_an_error_and_a_missing_one_is_not() -> None:
    session = session_without_permission("/a/date=2026-01-31")
    delete(session, "/a/date=2026-01-30")
    with pytest.raises(OptionError, match=r"^cannot delete /a/date=2026-01-31\Z"):
        delete(session, "/a/date=2026-01-31")
