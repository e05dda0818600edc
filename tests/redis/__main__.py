"""``make test-redis``: the sink on redis-server itself; further arguments go to pytest.

``--part`` runs the tests of ``PART``.
"""

from __future__ import annotations

import shutil
import sys

from tests.support.suites import pytest_suite

#: Order, TLS, several commands at once, a killed server, and Redis's own errors.
PART = (
    "tests/redis/test_redis_sink.py::test_each_message_goes_there_in_the_order_of_its_key",
    "tests/redis/test_redis_sink.py::test_over_tls_the_servers_certificate_is_asked_for",
    "tests/redis/test_redis_sink.py"
    "::test_several_commands_are_one_transaction_with_what_a_message_has",
    "tests/redis/test_redis_sink.py"
    "::test_a_killed_server_costs_no_message_an_attempt_and_order_holds",
    "tests/redis/test_redis_sink.py"
    "::test_a_key_of_another_type_fails_with_redis_own_words_and_follows_the_policy",
)


def missing() -> str | None:
    """What this machine lacks, as a sentence; None if all is there."""
    if shutil.which("redis-server") is None:
        return "redis-server not found: install Redis (on Debian the package redis-server)"
    return None


if __name__ == "__main__":
    sys.exit(pytest_suite("test-redis", "tests/redis", part=PART, missing=missing))
