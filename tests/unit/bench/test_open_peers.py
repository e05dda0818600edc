"""Peers with servers of their own: settings that they get, loads, records, and their judgement."""

from __future__ import annotations

import struct
import subprocess
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench import peer_takeover, takeover
from bench.cases.registry import CASES
from bench.frame.context import RunContext
from bench.frame.peer import Work
from bench.frame.progress import Counter
from bench.load.requests import BrokerSends
from bench.peers import java_programs, open_load, pulsar_standalone
from bench.peers.backlog import backlog_of
from bench.peers.java_programs import PeerFailed, version_in
from bench.peers.open_load import Consumer, Handled, OpenWork, judge_outage
from bench.peers.open_registry import OPEN_PEERS
from bench.peers.pulsar_site import load
from bench.peers.registry import PEERS
from bench.peers.rocketmq_proxy import (
    RocketmqProxy,
    consumer_options,
    fifo_commands,
    proxy_settings,
)
from bench.preload import MESSAGE_GROUP
from bench.runner import Plan, measure
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode
from proxy.errors import OrderlaneError
from testkit.rocketmq import VERSIONS

S = 1_000_000_000
_POMS = Path(java_programs.__file__).parent / "java"


# ---- RocketMQ's proxy ---------------------------------------------------------------------------


def test_a_fifo_topic_and_group_are_created_as_rocketmqs_documentation_advises() -> None:
    topic, group, *offsets = fifo_commands("bench", "bench-fifo", queues=2)
    assert topic.code == RequestCode.UPDATE_AND_CREATE_TOPIC
    assert topic.ext["attributes"] == "+message.type=FIFO"
    assert (topic.ext["readQueueNums"], topic.ext["writeQueueNums"]) == ("2", "2")
    assert group.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    settings = orjson.loads(bytes(group.body))
    assert (settings["groupName"], settings["consumeMessageOrderly"]) == ("bench-fifo", True)
    places = [(each.ext["queueId"], each.ext["commitOffset"]) for each in offsets]
    assert places == [("0", "0"), ("1", "0")], "a new group would begin at the end"


def test_messages_for_a_fifo_topic_have_their_key_as_message_group() -> None:
    work = Work(messages=8, keys=4, queues=2)
    for grouped in (False, True):
        sent = list(backlog_of(work, grouped=grouped).messages(Topic("bench"), 0, 2))
        groups = [each.properties.get(MESSAGE_GROUP) for each in sent]
        assert groups == [each.key if grouped else None for each in sent]
        assert groups
    frame = BrokerSends("bench", grouped=True).frame(1, 0, [(7, b"x")], ["ID"])
    assert b"__SHARDINGKEY\\u0001key-7\\u0002" in frame
    assert MESSAGE_GROUP.encode() not in BrokerSends("bench").frame(1, 0, [(7, b"x")], ["ID"])


def test_the_proxy_listens_on_loopback_before_the_broker_of_the_nameserver() -> None:
    settings = proxy_settings("127.0.0.1:9", port=1, remoting_port=2)
    assert settings["proxyMode"] == "CLUSTER"
    assert (settings["namesrvAddr"], settings["grpcServerPort"]) == ("127.0.0.1:9", 1)


def test_a_consumer_has_its_own_proxy_first_and_the_other_one_for_a_failover() -> None:
    done: Any = subprocess.Popen(["true"])
    done.wait()
    proxies = [RocketmqProxy(f"127.0.0.1:{port}", done) for port in (1, 2)]
    assert consumer_options(proxies, 64)["endpoints"] == "127.0.0.1:1;127.0.0.1:2"


def test_broker_and_proxy_of_rocketmq_have_one_version() -> None:
    assert version_in("rocketmq-proxy-server") == VERSIONS[0]
    assert version_in("pulsar") == version_in("pulsar-server")


@pytest.mark.parametrize("pom", sorted(_POMS.glob("*/pom.xml")), ids=lambda pom: pom.parent.name)
def test_no_pom_names_a_repository(pom: Path) -> None:
    """Maven's own settings decide where jars come from."""
    assert "http" not in pom.read_text()


# ---- Pulsar -------------------------------------------------------------------------------------


def test_the_settings_of_pulsar_name_all_its_ports_and_one_copy() -> None:
    text = pulsar_standalone.settings_text(port=1, web_port=2, bookie_port=3)
    settings = dict(line.split("=", 1) for line in text.splitlines())
    ports = [settings[name] for name in ("brokerServicePort", "webServicePort", "bookiePort")]
    assert ports == ["1", "2", "3"]
    assert {value for name, value in settings.items() if "Quorum" in name} == {"1"}
    assert settings["bindAddress"] == settings["advertisedAddress"] == "127.0.0.1"


def test_a_sender_reads_what_is_written_for_it() -> None:
    head = struct.pack(">iqii", 3, 5, 5, 2)
    assert pulsar_standalone.Sent(3, 5, "key-1", b"ab").to_bytes() == head + b"key-1ab"


def test_pulsar_stores_the_same_messages_in_the_same_queues_as_all_others() -> None:
    work = Work(messages=40, keys=8, queues=4, body_bytes=64)
    stored = list(pulsar_standalone.backlog(work))
    for queue in range(4):
        of_queue = [(each.key, each.body) for each in stored if each.partition == queue]
        assert of_queue == list(backlog_of(work).bodies(queue, 4))


def test_a_load_of_pulsar_has_rising_due_times_its_rate_and_numbered_bodies() -> None:
    work = OpenWork(rate=1000.0, seconds=1.0, keys=10, queues=4)
    sent = list(islice(load(work, work.rate), 2000))
    assert all(first.due_ns <= second.due_ns for first, second in pairwise(sent))
    assert sent[-1].due_ns - sent[0].due_ns == pytest.approx(2 * S, rel=0.2)
    numbers: dict[int, int] = {}
    for each in sent:
        key, number, due_ns = struct.unpack_from(">IIq", each.body)
        assert (each.key, each.partition, each.due_ns) == (f"key-{key}", key % 4, due_ns)
        assert number == numbers.get(key, 0)
        numbers[key] = number + 1


# ---- records and outages ------------------------------------------------------------------------


def test_the_record_of_a_killed_consumer_holds_what_it_had_handled(tmp_path: Path) -> None:
    """The last handling has no start: it had not ended."""
    done = [(1, 0, 10, 20, 30), (1, 1, 11, 0, 0)]
    record = b"".join(struct.pack(">iiqqq", *each) for each in done)
    (tmp_path / "record").write_bytes(record + bytes(64))
    process = subprocess.Popen(["true"])
    process.wait()
    with Counter(tmp_path / "handled") as counter:
        consumer = Consumer("Some", process, tmp_path, counter)
        assert consumer.handlings() == [Handled(1, 0, 10, 20, 30)]
        (tmp_path / "Some.err").write_text("no such topic")
        with pytest.raises(PeerFailed, match="Some ended; no such topic"):
            consumer.check()


def test_an_outage_is_the_longest_wait_for_the_keys_of_the_ended_process() -> None:
    own = [Handled(1, 0, 0, 0, 1), Handled(2, 0, 1 * S, 1 * S, 2 * S)]
    others = [Handled(3, 0, 1 * S, 1 * S, 1 * S)]
    later = [
        Handled(1, 1, 2 * S, 9 * S, 10 * S),
        Handled(2, 1, 3 * S, 8 * S, 9 * S),
        Handled(3, 1, 3 * S, 4 * S, 5 * S),
    ]
    found = judge_outage(own, [*own, *others, *later], 2 * S, sent=6)
    assert (found.gap_worst_s, found.gap_median_s, found.pause_s) == (7.0, 6.0, 7.0)
    assert (found.again, found.duplicates, found.faults, found.sent) == (0, 0, 0, 6)


def test_repeated_overlapping_and_early_handlings_are_counted() -> None:
    handlings = [
        Handled(1, 0, 0, 0, 5 * S),
        Handled(1, 0, 0, 4 * S, 6 * S),  # again, and beside the first
        Handled(2, 1, 0, 1 * S, 2 * S),  # before number 0
        Handled(2, 0, 0, 3 * S, 4 * S),
        Handled(2, 1, 0, 5 * S, 6 * S),  # again, and the first had ended
    ]
    found = judge_outage([], handlings, 2 * S, sent=3)
    assert (found.again, found.duplicates) == (2, 1)
    assert found.faults == 2


def test_a_take_over_that_did_not_finish_is_a_row_with_its_reason() -> None:
    outage = open_load.Outage(7.0, 6.0, 7.0, 2, 1, 0, 100)
    runs = [
        peer_takeover.PeerRun("pulsar-key-shared", "SIGKILL", 0, outage),
        peer_takeover.PeerRun("rocketmq-proxy", "SIGKILL", 0, None, "java not found"),
    ]
    first, second = takeover.rows(list(peer_takeover.summaries(runs)))
    assert (first["end"], first["again"]) == ("SIGKILL, pulsar-key-shared", "2")
    assert second == {"end": "SIGKILL, rocketmq-proxy: java not found"}
    assert runs[1].plain()["error"] == "java not found"


def test_an_error_of_a_peer_is_one_sentence(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(java_programs.shutil, "which", lambda _tool: None)
    said: list[str] = []
    plan = takeover.Plan("embedded").of_peers
    java_programs.client_path.cache_clear()
    found = peer_takeover.run("pulsar-key-shared", plan, end="SIGKILL", number=0, say=said.append)
    assert found.error.startswith("java, javac, mvn not found: peers need a JDK of version 17")
    assert said == [f"pulsar-key-shared, SIGKILL: did not finish: {found.error}"]


# ---- cases --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["keyed", "sweep", "drain", "latency"])
def test_the_peers_that_users_would_choose_first_are_part_of_full_runs(name: str) -> None:
    peers = CASES[name].full.peers
    assert {"rocketmq-proxy", "pulsar-key-shared"} <= set(peers)
    known = CASES[name].peers if CASES[name].work is None else PEERS
    assert set(peers) <= set(known)


def test_a_case_names_the_peers_that_it_has(tmp_path: Path) -> None:
    plan = Plan(vs=("kafka",))
    with pytest.raises(OrderlaneError, match="expected one of rocketmq-orderly, rocketmq-proxy"):
        measure(CASES["latency"], plan, tmp_path / "out", command="", say=print)
    with pytest.raises(OrderlaneError, match="--vs 'kafka': expected one of rocketmq-orderly"):
        peer_takeover.check(["kafka"])


def test_each_open_peer_describes_itself_without_its_tools(tmp_path: Path) -> None:
    assert all(len(peer.about) > 40 for peer in OPEN_PEERS.values())
    assert RunContext(tmp_path, 1, 0, "short").histories
