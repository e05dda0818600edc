"""``make test-spark``: tests that need Spark and Java; pass further arguments to pytest.

``--full`` runs the long form: more kills, more rows; ``--kills N`` sets the number of kills.
``--part`` runs the tests of ``PART``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

from tests.support.suites import pytest_suite

#: A batch, a stream, a job that writes, the archive, and the options that Spark passes on.
PART = (
    "tests/spark/test_session.py",
    "tests/spark/test_kafka_option_names.py",
    "tests/spark/test_outgoing.py",
    "tests/spark/test_readers.py",
    "tests/spark/test_lake_parts.py",
    "tests/spark/test_batch_reading.py::test_a_topic_is_read_with_all_its_columns",
    "tests/spark/test_batch_reading.py::test_every_message_of_all_queues_is_read_once",
    "tests/spark/test_batch_reading.py::test_pushed_filters_reduce_the_fetched_messages",
    "tests/spark/test_batch_reading.py::test_a_repeated_task_reads_the_same_messages",
    "tests/spark/test_batch_reading.py::test_tls_and_a_token_reach_the_tasks",
    "tests/spark/test_stream_reading.py"
    "::test_a_query_continues_from_its_checkpoint_and_repeats_a_lost_batch",
    "tests/spark/test_progress.py",
    "tests/spark/test_writing.py::test_rows_become_messages_in_the_queues_of_their_keys",
    "tests/spark/test_backfill.py::test_a_key_keeps_its_order_across_queues_and_clock_steps",
)
_OLDEST_JAVA = 17


def missing() -> str | None:
    """Return a sentence that names a missing requirement of Spark; None if all are installed."""
    if (java := shutil.which("java")) is None:
        return f"java not found: install a Java runtime of version {_OLDEST_JAVA} or newer"
    said = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=60, check=False
    ).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        first = said.partition("\n")[0]
        return f"{java} is {first}: install a Java runtime of version {_OLDEST_JAVA} or newer"
    return None


if __name__ == "__main__":
    sys.exit(pytest_suite("test-spark", "tests/spark", part=PART, missing=missing))
