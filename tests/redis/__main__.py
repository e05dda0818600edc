"""``make test-redis``: tests of the Redis sink on a real redis-server; pass further arguments to
pytest.

``--part`` runs the tests of ``PART``.
"""

from __future__ import annotations

import shutil
import sys

from tests.support.suites import pytest_suite

#: Order, TLS, transactions, a killed server, and Redis's own errors.
PART = (
    "tests/redis/test_redis_sink.py::test_messages_are_stored_in_the_order_of_their_keys",
    "tests/redis/test_redis_sink.py::test_tls_verifies_the_servers_certificate",
    "tests/redis/test_redis_sink.py::test_several_commands_are_one_transaction",
    "tests/redis/test_redis_sink.py::test_a_killed_server_costs_no_attempt_and_keeps_order",
    "tests/redis/test_redis_sink.py"
    "::test_a_key_of_another_type_fails_with_the_error_of_redis_and_follows_the_policy",
)


def missing() -> str | None:
    """Return a sentence that names the missing program; None if all are installed."""
    if shutil.which("redis-server") is None:
        return "redis-server not found: install Redis (on Debian the package redis-server)"
    return None


if __name__ == "__main__":
    sys.exit(pytest_suite("test-redis", "tests/redis", part=PART, missing=missing))
