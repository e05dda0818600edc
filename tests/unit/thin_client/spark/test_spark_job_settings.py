"""Which settings a job's session has: its own, those of spark-submit, and defaults."""

from __future__ import annotations

import pytest

from thin_client.spark.jobs.settings import (
    afterwards,
    at_server,
    at_start,
    master_of,
    remote_of,
)
from thin_client.spark.options import OptionError

SERVER = "sc://host:15002"


@pytest.mark.parametrize(
    ("given", "submitted", "expected"),
    [
        (None, False, "local[*]"),
        (None, True, None),
        ("", False, None),
        ("local[2]", False, "local[2]"),
        ("spark://host:7077", True, "spark://host:7077"),
    ],
)
def test_spark_submit_chooses_the_master(
    given: str | None, submitted: bool, expected: str | None
) -> None:
    assert master_of(given, submitted=submitted) == expected


def test_a_job_in_a_terminal_is_quiet_unless_told_otherwise() -> None:
    found = at_start("orderlane archive", {"spark.log.level": "WARN"}, submitted=False)
    assert found == {
        "spark.app.name": "orderlane archive",
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def test_a_submitted_job_replaces_no_setting_of_spark_submit() -> None:
    given = {"spark.executor.memory": "2g"}
    assert at_start("orderlane archive", given, submitted=True) == given


def test_files_have_times_in_utc_unless_someone_set_another_zone() -> None:
    zone, kind = "spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType"
    assert afterwards({}, lambda _: False) == {zone: "UTC", kind: "TIMESTAMP_MICROS"}
    assert afterwards({zone: "CET"}, lambda name: name == kind) == {}


@pytest.mark.parametrize(
    ("given", "settings", "environment", "expected"),
    [
        (SERVER, {}, {}, SERVER),
        (None, {"spark.remote": SERVER}, {}, SERVER),
        ("", {"spark.remote": SERVER}, {}, SERVER),
        (None, {}, {"SPARK_REMOTE": SERVER}, SERVER),
        ("local[2]", {}, {"SPARK_REMOTE": SERVER}, None),
        ("", {}, {"SPARK_REMOTE": SERVER}, None),
        (None, {}, {}, None),
    ],
)
def test_a_job_runs_at_a_server_of_spark_connect_if_one_is_named(
    given: str | None, settings: dict[str, str], environment: dict[str, str], expected: str | None
) -> None:
    assert remote_of(given, settings, environment) == expected


def test_a_server_of_spark_connect_gets_the_given_settings_alone() -> None:
    given = {"spark.remote": SERVER, "spark.sql.shuffle.partitions": "7"}
    assert at_server(SERVER, given, submitted=False) == {"spark.sql.shuffle.partitions": "7"}


@pytest.mark.parametrize(
    ("settings", "submitted", "sentence"),
    [
        ({"spark.submit.pyFiles": "orderlane.zip"}, False, "install the package for the Python of"),
        ({}, True, "spark-submit starts a session of its own: run the job without it"),
    ],
)
def test_what_spark_connect_cannot_do_is_refused(
    settings: dict[str, str], submitted: bool, sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        at_server(SERVER, settings, submitted=submitted)


@pytest.mark.parametrize("submitted", [True, False])
def test_no_error_shows_the_token_of_a_server(submitted: bool) -> None:
    with pytest.raises(OptionError, match="sc://host:15002") as refused:
        at_server(f"{SERVER}/;token=secret", {"spark.submit.pyFiles": "x.zip"}, submitted=submitted)
    assert "secret" not in str(refused.value)
