"""Decisions of the supervisor: ports, workers for connections, restarts."""

from __future__ import annotations

import pytest

from proxy.errors import SettingsError
from proxy.workers import channel
from proxy.workers.addresses import WorkerAddresses, worker_addresses
from proxy.workers.loads import Load, Rebalancer, by_preference
from proxy.workers.restarts import SILENT_S, Restarts, Silence, bad_ends, how

SHARED = {"listen.thrift": "127.0.0.1:9713", "listen.http": "127.0.0.1:9714"}


def test_each_worker_has_ports_ten_above_those_of_the_one_before() -> None:
    assert worker_addresses(2, shared=SHARED) == [
        WorkerAddresses(1, "127.0.0.1:9723", "127.0.0.1:9724"),
        WorkerAddresses(2, "127.0.0.1:9733", "127.0.0.1:9734"),
    ]


def test_any_free_port_stays_any_free_port() -> None:
    shared = {"listen.thrift": "[::1]:0", "listen.http": "0.0.0.0:80"}

    assert worker_addresses(1, shared=shared) == [WorkerAddresses(1, "[::1]:0", "0.0.0.0:90")]


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        (SHARED | {"listen.http": "127.0.0.1:9723"}, "listen.http and worker 1 for Thrift"),
        (SHARED | {"listen.producer": "127.0.0.1:9734"}, "listen.producer and worker 2 for HTTP"),
        (SHARED | {"listen.http": "127.0.0.1:9703"}, "listen.thrift and worker 1 for HTTP"),
        (SHARED | {"listen.thrift": "127.0.0.1:65520"}, "leaves no port for worker 2"),
    ],
)
def test_no_two_listeners_share_a_port(shared: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        worker_addresses(2, shared=shared)


def test_a_connection_goes_to_the_worker_with_the_fewest() -> None:
    loads = {1: Load(True, open=3), 2: Load(True, open=1), 3: Load(True, open=2)}

    assert by_preference(loads) == [2, 3, 1]


def test_among_equals_it_goes_to_the_one_that_was_given_fewest() -> None:
    """Short-lived connections, as those of HTTP, do not all go to the first worker."""
    loads = {1: Load(True, taken=5, handed=5), 2: Load(True, taken=4, handed=4)}

    assert by_preference(loads) == [2, 1]


def test_a_worker_that_is_not_ready_or_drains_gets_no_connection() -> None:
    assert by_preference({1: Load(), 2: Load(True, open=9)}) == [2]


def test_a_burst_is_spread_before_the_next_report() -> None:
    loads = {number: Load(True) for number in (1, 2, 3)}
    for _ in range(30):
        loads[by_preference(loads)[0]].hand()

    assert [load.handed for load in loads.values()] == [10, 10, 10]


def test_a_worker_that_stands_still_gets_one_connection_and_no_more() -> None:
    loads = {1: Load(True), 2: Load(True, open=50)}
    for _ in range(10):
        chosen = by_preference(loads)[0]
        loads[chosen].hand()
        if chosen == 2:
            taken = loads[2].taken + 1
            loads[2].reported(listening=True, connections=50 + taken, movable=0, taken=taken)

    assert (loads[1].handed, loads[2].handed) == (1, 9)


def test_pauses_between_starts_double_up_to_half_a_minute() -> None:
    restarts = Restarts()

    assert [restarts.pause_s(1) for _ in range(5)] == [0.2, 0.4, 0.8, 1.6, 3.2]
    assert [restarts.pause_s(1) for _ in range(2000)][-1] == 30


def test_a_worker_that_ran_for_a_minute_is_started_again_at_once() -> None:
    restarts = Restarts(soon=9)

    assert restarts.pause_s(60) == 0.2
    assert restarts.pause_s(59) == 0.4


def test_a_worker_that_is_silent_for_a_minute_is_to_be_killed() -> None:
    silence = Silence(heard_s=0, looked_s=0)

    assert not any(silence.too_long(now) for now in range(1, int(SILENT_S) + 1))
    assert silence.too_long(SILENT_S + 1)
    silence.heard(SILENT_S + 2)
    assert not silence.too_long(SILENT_S + 3)


def test_no_worker_counts_as_silent_while_the_supervisor_was_suspended() -> None:
    silence = Silence(heard_s=0, looked_s=1)

    assert not silence.too_long(1000)
    assert not silence.too_long(1001)


def test_exit_codes_are_described_in_words() -> None:
    assert [how(code) for code in (2, -9, -200)] == ["with code 2", "by SIGKILL", "by signal 200"]
    assert bad_ends({1: 0, 2: 0}) is None
    assert bad_ends({2: -9, 1: 1, 3: 0}) == (
        "worker 1 ended with code 1, worker 2 ended by SIGKILL instead of draining"
    )


def test_clients_leave_a_worker_that_has_too_many_for_three_seconds() -> None:
    rebalancer = Rebalancer()
    loads = {1: Load(True), 2: Load(True, open=7, movable=6)}

    assert [rebalancer.look(loads) for _ in range(4)] == [None, None, (2, 3), None]


def test_one_more_client_is_not_too_many() -> None:
    rebalancer = Rebalancer()
    loads = {1: Load(True, open=2, movable=2), 2: Load(True, open=3, movable=3), 3: Load()}

    assert not any(rebalancer.look(loads) for _ in range(9))


def test_clients_that_would_come_back_stay() -> None:
    """Producers stay, so a client that is released would return."""
    rebalancer = Rebalancer()
    loads = {1: Load(True, open=9), 2: Load(True, open=8, movable=8)}

    assert not any(rebalancer.look(loads) for _ in range(9))


def test_a_moment_of_too_many_counts_for_nothing() -> None:
    rebalancer = Rebalancer()
    uneven = {1: Load(True), 2: Load(True, open=4, movable=4)}
    even = {1: Load(True, open=2, movable=2), 2: Load(True, open=2, movable=2)}

    assert not any(rebalancer.look(loads) for loads in (uneven, uneven, even, uneven, uneven))
    assert rebalancer.look(uneven) == (2, 2)


def test_a_connection_that_came_without_its_file_is_lost_and_no_more() -> None:
    """This happens when a process has reached its limit of open files; open connections
    continue.
    """
    ours, theirs = channel.pair()
    with ours, theirs:
        ours.send(b"thrift")
        assert channel.receive(theirs) == "lost"
        assert channel.receive(theirs) is None
