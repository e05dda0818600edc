"""Which settings a job's session has: its own, those of spark-submit, and defaults."""

from __future__ import annotations

import pytest

from thin_client.spark.jobs.settings import afterwards, at_start, master_of


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
