"""Processes killed, terminated and stopped: no message is lost, and no key is handled out of order.

``ORDERLANE_KILLS=N`` kills the gateway N times in one run instead of once; ``ORDERLANE_SEED=N``
selects the moments.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.brokers import EMBEDDED_ONES, Brokers
from testkit.processes import Children, wait_until
from tests.support.process_site import (
    HISTORY,
    QUEUES,
    RATE,
    Gateway,
    Site,
    ask,
    children_in,
    events,
    finish_pair,
    kill,
    look,
    make_patient,
    start_pair,
    start_up,
    stop_producing,
    verdict,
    with_times,
)

KILLS = int(os.environ.get("ORDERLANE_KILLS", "1"))
SEED = int(os.environ.get("ORDERLANE_SEED", "7"))


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    with children_in(tmp_path) as children:
        yield children


@pytest.fixture
def site(children: Children, brokers: Brokers) -> Site:
    site = Site(children, brokers)
    site.start()
    return site


def stored(gateway: Gateway) -> int:
    """Return the number of messages in the queues of its only proxy."""
    return sum(queue["end"] for queue in gateway.queues(0))


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * KILLS)
def test_nothing_is_lost_when_all_servers_are_killed_and_restarted(children: Children) -> None:
    """Producer and consumer continue by themselves, and the merged histories are clean."""
    chooser = random.Random(SEED)
    up, at = start_up(children)
    gateway = Gateway([at["thrift"]], [at["http"]])
    common = ("--proxy", at["thrift"], *HISTORY)
    producer = children.start("produce", "orders", "--count", 10**6, "--rate", RATE, *common)
    consumer = children.start("consume", "billing", "--work-ms", 2, *common)
    for _ in range(KILLS):
        consumer.wait_for(len(consumer.out) + RATE // 2)
        time.sleep(chooser.uniform(0, 2))
        up.kill()
        time.sleep(chooser.uniform(0, 0.5))
        up, _ = start_up(children, at)
    more = RATE * (KILLS + 1)  # some of it may be stored twice
    wait_until(lambda: stored(gateway) > more, within_s=90, what="sends after the kills")
    assert producer.terminate() == 0, producer.err
    sent = producer.ended_with["sent"]
    wait_until(lambda: gateway.drained(sent), within_s=60, what="everything consumed")
    assert consumer.terminate() == 0
    assert up.terminate() == 0
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (sent, 0)
    assert len(consumer.out) >= sent > RATE * KILLS


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
def test_nothing_is_lost_when_proxy_and_broker_are_killed_and_restarted(site: Site) -> None:
    children = site.children
    (proxy,), gateway = site.start_proxies(1)
    common = ("--proxy", gateway.thrift[0], *HISTORY)
    produce = ("produce", site.topic, "--count", 10**6, "--rate", RATE)
    producer = children.start(*produce, "--timeout", 120, *common)
    consumer = children.start("consume", site.group, "--work-ms", 2, *common)
    consumer.wait_for(RATE)
    proxy.kill()
    site.kill_broker()
    site.start_broker()
    (proxy,), _ = site.start_proxies(1, gateway)
    consumer.wait_for(len(consumer.out) + RATE)
    assert producer.terminate() == 0, producer.err
    sent = producer.ended_with["sent"]
    wait_until(lambda: gateway.drained(sent), within_s=60, what="everything consumed")
    assert consumer.terminate() == 0
    assert proxy.terminate() == 0
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (sent, 0)


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
@pytest.mark.parametrize("clean", [True, False], ids=["SIGTERM", "SIGKILL"])
def test_the_queues_of_an_ended_proxy_move_to_the_other(
    children: Children, brokers: Brokers, clean: bool
) -> None:
    """First four queues each, then all eight at one; a clean end causes no redelivery."""
    if clean:
        make_patient(children.folder)
    site = Site(children, brokers)
    site.start()
    pair = start_pair(site)
    if clean:
        assert pair.proxies[0].terminate() == 0
    else:
        kill(site.children, pair.proxies[0])
    wait_until(lambda: len(pair.gateway.owned(1)) == QUEUES, within_s=60, what="all queues at one")
    report = finish_pair(site, pair)

    if clean:
        assert report["duplicates"] == 0
        assert all(event["attempt"] == 1 for event in events(site.children, "deliver"))


@pytest.mark.slow
def test_a_key_stays_paused_when_the_proxy_that_owns_its_queue_is_killed(
    children: Children,
) -> None:
    """The next owner delivers all other keys; after the resume this key continues in order."""
    # No queue moves before the kill, even if a process stalls.
    with_times(children.folder, ("trust_s: 1.2", "trust_s: 3.5"), ("expiry_s: 2", "expiry_s: 4"))
    site = Site(children, EMBEDDED_ONES)
    site.start()
    pair = start_pair(site)
    keys = f"/api/groups/{site.group}/topics/{site.topic}/keys"
    killed, left = pair.gateway.http
    owned = pair.gateway.owned(0)
    key = next(each["order"] for each in events(children, "deliver") if each["queue"] in owned)
    ask(killed, f"{keys}/pause", key=key)
    kill(site.children, pair.proxies[0])
    pair.consumers[1].wait_for(len(pair.consumers[1].out) + 4 * RATE)  # some of that key as well
    stop_producing(pair)

    def only_that_key_waits() -> bool:
        """Return whether only the paused key has messages left; none of them may be delivered."""
        queues = pair.gateway.queues(1)
        return (
            len(queues) == QUEUES
            and all(each["position"] == each["end"] for each in queues)
            and sum(each["ready"] + each["leased"] for each in queues) == 0
            and [each["paused"] for each in queues if each["unfinished"]] == [1]
        )

    wait_until(only_that_key_waits, within_s=60, what="all other keys at an end")
    paused = look(left, f"{keys}/paused")
    waiting = sum(each["unfinished"] for each in pair.gateway.queues(1))
    assert {(each["key"], each["queue"]) for each in paused} == {(key, each) for each in owned}
    assert sum(each["backlog"] for each in paused) == waiting
    ask(left, f"{keys}/resume", key=key)
    finish_pair(site, pair)
    assert {"pause", "resume"} == {each["e"] for each in events(children, "pause", "resume")}


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
def test_a_proxy_stopped_longer_than_its_leases_does_no_harm_when_it_resumes(site: Site) -> None:
    """SIGSTOP outlasts trust, leases and commits; brokers keep the proxy as a member."""
    pair = start_pair(site)
    sleeper = pair.proxies[0]
    sleeper.pause()
    time.sleep(3)
    sleeper.resume()
    finish_pair(site, pair)


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
def test_a_change_of_the_order_key_survives_a_kill_of_its_proxy(site: Site) -> None:
    """The next owner continues: old rule below the switch, new rule above. While clients are
    stopped no older message finishes, so no change completes.
    """
    pair, path = start_pair(site), site.children.folder / "settings.yaml"
    for consumer in pair.consumers:
        consumer.pause()
    path.write_text(path.read_text().replace("order_key: KEY", "order_key: QID"))

    def begun() -> set[str]:
        changes = events(site.children, "order_key")
        return {each["queue"] for each in changes if not each["through"]} & pair.gateway.owned(0)

    wait_until(begun, within_s=60, what="a change under way")
    kill(site.children, pair.proxies[0])
    for consumer in pair.consumers:
        consumer.resume()
    wait_until(lambda: len(pair.gateway.owned(1)) == QUEUES, within_s=60, what="all queues at one")
    finish_pair(site, pair)
    went_on = [each for each in events(site.children, "own+") if each.get("key_since") is not None]

    assert went_on, "the kill has to come in the middle"
    assert any("next_order" in each for each in events(site.children, "deliver"))


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False], ids=["SIGTERM", "SIGKILL"])
def test_messages_of_an_ended_client_go_to_another(children: Children, clean: bool) -> None:
    """A drained client causes no redelivery; a killed client's messages are redelivered in order
    after the lease expired.
    """
    make_patient(children.folder)
    if not clean:
        with_times(children.folder, ("visibility_timeout_s: 30", "visibility_timeout_s: 1.5"))
    _, at = start_up(children)
    common = ("--proxy", at["thrift"], *HISTORY)
    assert children.run("produce", "orders", "--count", 1000, *common).code == 0
    consume = ("consume", "billing", *common)
    first = children.start(*consume, "--work-ms", 100)  # long enough not to finish earlier
    first.wait_for(100)
    if clean:
        assert first.terminate() == 0
    else:
        first.kill()
    second = children.start(*consume, "--work-ms", 10, "--until-idle", 10)
    assert second.wait() == 0, second.err
    report = verdict(children)
    again = [event for event in events(children, "deliver") if event["attempt"] > 1]

    assert (report["acknowledged"], report["lost"]) == (1000, 0)
    assert len(events(children, "expire")) == len(again)
    assert (not again) is clean
    assert report["duplicates"] <= len(again)  # handled, and killed before the ack


@pytest.mark.slow
def test_a_stopped_client_loses_only_its_leases(children: Children) -> None:
    """SIGSTOP outlasts a lease: other clients continue, and the resumed client does no harm."""
    make_patient(children.folder)  # the queues do not move
    with_times(children.folder, ("visibility_timeout_s: 30", "visibility_timeout_s: 1.5"))
    _, at = start_up(children)
    common = ("--proxy", at["thrift"], *HISTORY)
    assert children.run("produce", "orders", "--count", 1000, *common).code == 0
    consume = ("consume", "billing", *common)
    sleeper = children.start(*consume, "--work-ms", 100)  # long enough not to finish earlier
    sleeper.wait_for(100)
    sleeper.pause()
    assert children.start(*consume, "--work-ms", 10, "--until-idle", 10).wait() == 0
    sleeper.resume()
    assert sleeper.terminate() == 0
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (1000, 0)
    assert events(children, "expire")


def got_sigterm(pid: int) -> bool:
    """Return whether no SIGTERM is pending; a second one would be merged with a pending one."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    (pending,) = [line.split()[1] for line in status if line.startswith("ShdPnd:")]
    return not int(pending, 16) >> (signal.SIGTERM - 1) & 1


@pytest.mark.slow
def test_a_second_sigterm_does_not_wait_for_handlers(children: Children) -> None:
    make_patient(children.folder)
    up, at = start_up(children)
    common = ("--proxy", at["thrift"], *HISTORY)
    assert children.run("produce", "orders", "--count", 8, *common).code == 0
    consumer = children.start("consume", "billing", "--work-ms", 60_000, *common)
    wait_until(lambda: events(children, "handle_start"), within_s=30, what="a handler at work")
    for process in (consumer, up):
        process.process.terminate()
    for process in (consumer, up):
        pid = process.process.pid
        wait_until(lambda pid=pid: got_sigterm(pid), within_s=30, what="it took the signal")  # type: ignore[misc]
    time.sleep(0.5)
    assert consumer.running, "it should wait for its handler"
    assert up.running, "it should wait for the lease"

    assert up.terminate(within_s=20) == 128 + 15  # it would wait for 30 s
    assert consumer.terminate(within_s=20) == 0
