"""``make conformance-rocketmq``: run the suite for each version of Apache RocketMQ, side by side.

They mostly wait for each other's clocks, so two fit on a machine with two cores. The closing table
covers both; further arguments go to pytest. ``--version`` selects one of them; ``--part`` runs the
tests of ``PART`` with the newest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from bench.peers.java_programs import client_path, orderlane_path, server_path
from testkit.java import require_java
from testkit.processes import ROOT
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.other_clients import PROGRAMS
from tests.conformance.rocketmq.programs import rocketmq_programs
from tests.support.suites import missing_tool

_OURS, _THEIRS = "tests/conformance/rocketmq/test_", "tests/integration/"
#: Their clients on our broker: producers, orderly consumers, dead letters, transactions, replicas,
#: kills, filters; those for C++, Go and Node. Our proxy on their broker: order, locks, retries,
#: dead letters, parking, take-overs.
PART = (
    f"{_OURS}client_producer.py::test_sent_messages_are_stored_with_all_fields",
    f"{_OURS}client_producer.py::test_a_key_goes_to_the_same_queue_as_with_our_producer",
    f"{_OURS}client_consumer.py::test_every_member_gets_every_message",
    f"{_OURS}client_orderly.py::test_every_queue_is_handled_in_order",
    f"{_OURS}client_orderly.py::test_a_suspended_queue_repeats_its_messages_and_others_continue",
    f"{_OURS}client_orderly.py::test_without_auto_commit_only_a_commit_moves_the_offset",
    f"{_OURS}client_delays.py::test_a_failed_message_is_redelivered_until_it_is_a_dead_letter",
    f"{_OURS}client_transactions.py"
    "::test_committed_messages_are_seen_once_and_rolled_back_ones_never",
    f"{_OURS}client_transactions.py::test_another_producer_of_the_group_answers_for_a_killed_one",
    f"{_OURS}client_replicas.py::test_orderly_consumers_have_queues_while_a_majority_is_up",
    f"{_OURS}client_kill.py::test_no_key_out_of_order_none_lost_no_queue_with_two_owners",
    f"{_OURS}sql_filters.py::test_its_consumers_get_messages_that_pass_the_filter",
    f"{_OURS}other_clients.py::test_an_orderly_consumer_gets_each_queue_in_order[odd-cpp]",
    f"{_OURS}other_clients.py::test_committed_messages_are_seen_and_rolled_back_ones_are_not",
    f"{_OURS}other_clients.py::test_a_concurrent_consumer_gets_the_wanted_tags[odd-node]",
    f"{_OURS}official_nameserver.py::test_our_broker_on_the_official_nameserver",
    f"{_OURS}official_queries.py::test_messages_are_found",
    f"{_OURS}same_bytes.py::test_the_shared_vectors_match_java",
    f"{_THEIRS}upstream/ownership/test_ownership.py::test_everything_is_handled_once_and_in_order",
    f"{_THEIRS}upstream/ownership/test_ownership.py"
    "::test_claim_2_a_queue_whose_lock_went_to_another_is_dropped_at_once",
    f"{_THEIRS}upstream/ownership/test_ownership.py"
    "::test_claim_5_after_a_broker_restart_a_new_owner_waits_for_the_old_leases",
    f"{_THEIRS}upstream/dead_letters/test_failures.py"
    "::test_a_failed_message_comes_again_and_only_its_key_waits",
    f"{_THEIRS}upstream/dead_letters/test_failures.py"
    "::test_after_max_deliveries_a_message_is_a_dead_letter_and_its_key_goes_on",
    f"{_THEIRS}upstream/parking/test_parking.py"
    "::test_a_parked_key_waits_in_order_and_is_redriven_in_order",
    f"{_THEIRS}upstream/dead_letters/test_dead_letter_redrive.py"
    "::test_dead_letters_go_back_and_are_handled_as_new_messages",
    f"{_THEIRS}broker/transactions/test_transactions.py"
    "::test_a_committed_message_is_seen_once_and_a_rolled_back_one_never",
    f"{_THEIRS}broker/test_bad_requests_codes.py::test_bad_requests_get_the_codes_of_rocketmq",
    f"{_THEIRS}cli/test_processes.py"
    f"::test_the_queues_of_an_ended_proxy_move_to_the_other[{VERSIONS[0]}-SIGKILL]",
)
_BUILD = ROOT / "build/rocketmq"


def main() -> int:
    options, further = _options()
    try:
        require_java()
    except (pytest.skip.Exception, pytest.fail.Exception) as missing:
        return missing_tool("conformance-rocketmq", str(missing))
    versions = options.version or (VERSIONS[:1] if options.part else VERSIONS)
    for version in versions:
        rocketmq_programs(version)
    if not options.part:
        # Fetch with Maven in advance: that may take longer than a test.
        for server in ("kafka-server", "rocketmq-proxy-server", "pulsar-server"):
            server_path(server)
        for client in ("parallel-consumer", "rocketmq-proxy", "pulsar"):
            client_path(client)
        orderlane_path()
    for fetched in PROGRAMS.values():
        with suppress(pytest.skip.Exception):  # reported by its tests
            fetched()
    began = time.monotonic()
    tests = PART if options.part else ("tests/conformance/rocketmq", "tests/integration")
    runs = {version: _start(version, [*tests, *further]) for version in versions}
    codes = [process.wait() for process, _ in runs.values()]
    for version, (_, output) in runs.items():
        text = output.read_text(errors="replace")
        print(f"==> {version}", text if any(codes) else text.splitlines()[-1], sep="\n")
    _print_table(versions)
    print(f"took {time.monotonic() - began:.0f} s")
    return max(codes)


def _options() -> tuple[argparse.Namespace, list[str]]:
    """Return our options, and the arguments for pytest."""
    parser = argparse.ArgumentParser(
        prog="make conformance-rocketmq ARGS=", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--version", action="append", choices=VERSIONS, help="default: all")
    parser.add_argument("--part", action="store_true", help="only the tests of CI")
    return parser.parse_known_args()


def _start(version: str, arguments: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
    output = _BUILD / version / "conformance.out"
    command = [sys.executable, "-m", "pytest"]
    # The first test on a broker waits for it and for Maven, longer if two run at a time.
    command += ["--time-limit", "300", "--broker", version, "-k", version, *arguments]
    with output.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT), output


def _print_table(versions: Sequence[str]) -> None:
    rows = [
        row
        for version in versions
        if (path := _BUILD / version / "conformance.json").exists()
        for row in orjson.loads(path.read_bytes())
    ]
    rows.sort(key=lambda row: (row["feature"], row["version"]))
    wide = max((len(row["feature"]) for row in rows), default=0)
    for row in rows:
        print(f"{row['feature']:<{wide}}  {row['version']:<8}  {row['result']}")


if __name__ == "__main__":
    sys.exit(main())
