"""Several workers behind one address, as real processes: killed, stopped, refused."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import orjson
import pytest

from testkit.brokers import EMBEDDED_ONES
from testkit.certificates import make_certificates
from testkit.processes import Child, Children, wait_until
from tests.support.process_site import (
    HISTORY,
    QUEUES,
    RATE,
    Gateway,
    Site,
    children_in,
    look,
    make_patient,
    verdict,
    with_times,
)

FREE = ("--thrift-port", 0, "--http-port", 0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with children_in(tmp_path) as children:
        site = Site(children, EMBEDDED_ONES)
        site.start()
        yield site


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Site]:
    """Settings with which no queue moves although a process is suspended."""
    with children_in(tmp_path) as children:
        make_patient(tmp_path)
        site = Site(children, EMBEDDED_ONES)
        site.start()
        yield site


def start_workers(site: Site, count: int) -> tuple[Child, dict[str, Any]]:
    where = ("--settings", "settings.yaml", "--nameserver", site.nameserver, *HISTORY)
    proxy = site.children.start("proxy", "--workers", count, *where, *FREE)
    return proxy, proxy.ready()


def gateway_of(workers: list[dict[str, Any]]) -> Gateway:
    return Gateway([each["thrift"] for each in workers], [each["http"] for each in workers])


def shared(gateway: Gateway) -> bool:
    return [len(gateway.owned(worker)) for worker in (0, 1)] == [QUEUES // 2] * 2


def said(proxy: Child, event: str) -> list[dict[str, Any]]:
    """Return its log lines with this event."""
    lines = [orjson.loads(line) for line in proxy.err.split("\n")[:-1] if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
def test_workers_share_clients_and_queues_and_one_that_is_killed_comes_back(site: Site) -> None:
    """All clients use one address. Nothing is lost, and each key stays in order."""
    children = site.children
    proxy, ready = start_workers(site, 2)
    workers, door = ready["workers"], ("--proxy", ready["thrift"], *HISTORY)
    gateway = gateway_of(workers)
    consumers = [children.start("consume", site.group, "--work-ms", 3, *door) for _ in range(2)]
    wait_until(lambda: shared(gateway), within_s=60, what="four queues each")
    sent = RATE * 4
    # At the surviving one: messages stored by an interrupted send are stored again.
    produce = ("produce", site.topic, "--proxy", workers[1]["thrift"], *HISTORY)
    producer = children.start(*produce, "--count", sent, "--rate", RATE)
    consumers[0].wait_for(len(consumers[0].out) + 100)
    os.kill(workers[0]["pid"], signal.SIGKILL)
    wait_until(lambda: said(proxy, "worker ready"), within_s=60, what="a worker in its place")
    (ended_line,), (ready_line,) = (
        said(proxy, event) for event in ("worker exited; restarting it", "worker ready")
    )
    assert (ended_line["worker"], ended_line["ended"]) == (1, "by SIGKILL")
    assert producer.wait() == 0, producer.err
    gateway = gateway_of([ready_line, workers[1]])
    wait_until(lambda: shared(gateway), within_s=60, what="four queues each again")
    wait_until(lambda: gateway.drained(sent), within_s=60, what="everything consumed")
    assert [consumer.terminate() for consumer in consumers] == [0, 0]
    assert proxy.terminate() == 0, proxy.err
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (sent, 0)


@pytest.mark.slow
def test_clients_at_two_workers_get_all_of_the_topic_that_they_name(tmp_path: Path) -> None:
    topics, sent = ("orders", "payments"), 200
    with children_in(tmp_path) as children:
        both = "topics: [{name: payments, order_key: KEY}, {name: orders"
        with_times(tmp_path, ("topics: [{name: orders", both))
        site = Site(children, EMBEDDED_ONES)
        site.start()
        proxy, ready = start_workers(site, 2)
        for topic in topics:
            produce = ("produce", topic, "--proxy", ready["thrift"], "--count", sent, *HISTORY)
            assert children.run(*produce).code == 0
        consumers = [
            children.start("consume", site.group, topic, "--proxy", worker["thrift"], *HISTORY)
            for topic, worker in zip(topics, ready["workers"], strict=True)
        ]
        for consumer in consumers:
            consumer.wait_for(sent)
        gateway = gateway_of(ready["workers"])
        owned = [{each["topic"] for each in gateway.queues(worker)} for worker in (0, 1)]
        assert owned == [{"orders"}, {"payments"}]
        assert [consumer.terminate() for consumer in consumers] == [0, 0]
        assert proxy.terminate() == 0, proxy.err
        report = verdict(children)
    assert (report["acknowledged"], report["lost"]) == (2 * sent, 0)


@pytest.mark.slow
def test_answers_at_the_shared_address_are_consistent(patient: Site) -> None:
    """Each request may reach another worker: every queue is shown exactly once."""
    site = patient
    _, ready = start_workers(site, 2)
    workers, door = ready["workers"], ("--proxy", ready["thrift"])
    consuming = ("consume", site.group, "--work-ms", 600_000, *door)
    consumers = [site.children.start(*consuming) for _ in range(2)]
    wait_until(lambda: shared(gateway_of(workers)), within_s=60, what="four queues each")
    assert site.children.run("produce", site.topic, "--count", 400, "--keys", 20, *door).code == 0
    where = ("--http", ready["http"])

    def asked(*verb: str) -> Any:
        ended = site.children.run(*verb, *where, "-o", "json")
        assert ended.code == 0, ended
        return orjson.loads(ended.out)

    def all_keys() -> bool:
        return len(asked("keys", "top", site.group, "--limit", "100")) == 20

    wait_until(all_keys, within_s=60, what="all messages read")
    for _ in range(4):
        rows = asked("keys", "top", site.group, "--limit", "100")
        assert len({(row["queue"], row["key"]) for row in rows}) == len(rows) == 20
    for verb in ("pause", "resume"):
        rows = asked("groups", verb, site.group, "--reason", "a test")
        assert len({row["queue"] for row in rows}) == len(rows) == QUEUES
    frame = site.children.run("top", site.group, "--once", *where).out.splitlines()
    assert frame[3].split()[:2] == [site.group, str(QUEUES)]
    drained = site.children.run("owners", "drain", ready["http"], "--reason", "a test", *where)
    assert drained.code == 2
    assert "is shared by several workers: name one of them, such as" in drained.err
    for consumer in consumers:
        consumer.kill()


@pytest.mark.slow
def test_the_address_of_all_workers_serves_as_that_of_one(tmp_path: Path) -> None:
    """With TLS; process-specific requests go to the worker, and a signal reaches all."""
    certificates = make_certificates(tmp_path)
    settings = tmp_path / "settings.yaml"
    tls = f"{{certificate: {certificates.server}, key: {certificates.server_key}}}"
    settings.write_text(f"listen: {{tls: {tls}}}\n")
    with Children(tmp_path) as children:
        ports = (*FREE, "--nameserver-port", 0, "--broker-port", 0)
        up = children.start("up", "--workers", 2, "--settings", "settings.yaml", *ports)
        ready = up.ready()
        door = ("--proxy", ready["thrift"], "--tls-ca", certificates.ca)
        assert children.run("produce", "orders", "--count", 10, *door).code == 0
        consumer = children.start("consume", "billing", "orders", *door)
        consumer.wait_for(10)
        assert consumer.terminate() == 0
        assert look(ready["http"], "/api/config")["problems"] == []
        with pytest.raises(HTTPError) as refused:
            look(ready["http"], "/metrics")
        refused.value.close()
        groups = "groups: [{name: shipping, topics: [{name: parcels}]}]\n"
        settings.write_text(settings.read_text() + groups)
        up.hang_up()
        for worker in ready["workers"]:
            wait_until(
                lambda at=worker["http"]: "shipping" in look(at, "/api/groups"),  # type: ignore[misc]
                within_s=60,
                what="the new group",
            )
        up.kill()
        for worker in ready["workers"]:
            pid = worker["pid"]
            wait_until(lambda pid=pid: ended(pid), within_s=60, what="its end")  # type: ignore[misc]

    assert refused.value.code == 421
    owners = set(refused.value.headers["Orderlane-Owners"].split(", "))
    assert owners < {worker["http"] for worker in ready["workers"]}


@pytest.mark.slow
def test_a_worker_that_cannot_start_ends_them_all_with_one_sentence(tmp_path: Path) -> None:
    with Children(tmp_path) as children, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = ("--thrift-port", port - 20, "--http-port", 0)
        ended = children.run("proxy", "--workers", 2, *ports)

    assert ended.code == 2
    assert f"worker 2: listen.thrift: cannot listen on 127.0.0.1:{port}" in ended.err
    assert ended.err.endswith("orderlane: worker 2 ended with code 2 before it was ready\n")


@pytest.mark.slow
def test_a_worker_comes_back_while_the_settings_file_is_invalid(tmp_path: Path) -> None:
    """It serves the groups of the other workers, with the settings of the process."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("groups: []\n")
    with children_in(tmp_path) as children:
        where = ("--settings", "settings.yaml", "--nameserver", "127.0.0.1:1", *FREE)
        proxy = children.start("proxy", "--workers", 2, *where)
        ready = proxy.ready()
        workers = ready["workers"]
        settings.write_text("groups: [{name: billing, topics: [{name: orders}]}]\n")
        for worker in workers:
            wait_until(
                lambda at=worker["http"]: "billing" in look(at, "/api/groups"),  # type: ignore[misc]
                within_s=60,
                what="the group at each worker",
            )
        look(ready["http"], "/api/config")  # a worker that takes a connection reports
        settings.write_text("groups: [")
        os.kill(workers[0]["pid"], signal.SIGKILL)
        wait_until(lambda: said(proxy, "worker ready"), within_s=60, what="a worker in its place")
        (again,) = said(proxy, "worker ready")

        assert "billing" in look(again["http"], "/api/groups")
        assert proxy.terminate() == 0, proxy.err
