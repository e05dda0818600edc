"""Every verb against a running gateway: its output, and one sentence for each error."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from testkit.processes import Child, Children
from tests.support.command_line import CommandLine

SETTINGS = """
auto_create_groups: false
groups:
  - name: billing
    topics: [{name: orders, order_key: KEY}]
  - name: audit
    topics: [{name: bytes}]
"""


@dataclass(frozen=True, slots=True)
class Live:
    """A gateway in a process of its own."""

    children: Children
    up: Child
    at: dict[str, str]
    data: Path

    @property
    def proxy(self) -> tuple[str, str]:
        return ("--proxy", self.at["thrift"])

    @property
    def http(self) -> tuple[str, str]:
        return ("--http", self.at["http"])

    @property
    def nameserver(self) -> tuple[str, str]:
        return ("--nameserver", self.at["nameserver"])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    (folder / "settings.yaml").write_text(SETTINGS)
    ports = [
        part
        for name in ("thrift", "http", "nameserver", "broker")
        for part in (f"--{name}-port", 0)
    ]
    with Children(folder) as children:
        up = children.start("up", "--data", "data", "--settings", "settings.yaml", *ports)
        yield Live(children, up, up.ready(), folder / "data")


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address where no server listens, and where none can start."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def json_lines(text: str) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in text.splitlines()]


# ---- what the verbs show -------------------------------------------------------------------------


def test_produced_messages_are_consumed_and_counted(orderlane: CommandLine, live: Live) -> None:
    sent = orderlane("produce", "orders", "--count", 20, "--keys", 3, "--tag", "t", *live.proxy)
    assert (sent.code, sent.json) == (0, {"sent": 20})
    consumed = orderlane("consume", "billing", "--count", 20, *live.proxy)
    assert consumed.code == 0
    assert consumed.err == "20 messages handled\n"
    first, *_ = messages = json_lines(consumed.out)
    assert len(messages) == 20
    assert first["tag"] == "t"
    assert first["order_key"] == first["key"] in {"key-0", "key-1", "key-2"}
    orderlane("produce", "orders", "--count", 5, *live.proxy)
    quiet = orderlane("consume", "billing", "orders", "--quiet", "--count", 5, *live.proxy)
    assert (quiet.json, quiet.err) == ({"handled": 5}, "")


def test_lines_of_stdin_are_messages(live: Live) -> None:
    lines = b"a\tone\n\nb\ttwo\r\n\tno key\nc\t\xff"
    sent = live.children.run("produce", "bytes", "--keyed", *live.proxy, stdin=lines)
    assert sent.json == {"sent": 4}, sent.err
    consumed = live.children.run("consume", "audit", "--count", 4, *live.proxy)
    shown = {
        (message["key"], message.get("body", message.get("body_base64")))
        for message in json_lines(consumed.out)
    }
    assert shown == {("a", "one"), ("b", "two"), (None, "no key"), ("c", "/w==")}


def test_one_key_is_that_of_all_lines_and_excludes_keys_of_lines(
    orderlane: CommandLine, live: Live
) -> None:
    produce = ("produce", "bytes", "--key", "k", *live.proxy)
    sent = live.children.run(*produce, stdin=b"one\ntwo\n")
    assert sent.json == {"sent": 2}, sent.err
    consumed = live.children.run("consume", "audit", "--count", 2, *live.proxy)
    shown = [(message["key"], message["body"]) for message in json_lines(consumed.out)]
    assert shown == [("k", "one"), ("k", "two")]
    assert "exclude each other" in orderlane.problem(*produce, "--keyed")
    assert "--key is empty" in orderlane.problem("produce", "bytes", "--key", "", *live.proxy)


def test_a_message_that_stdout_has_no_characters_for_is_given_back(live: Live) -> None:
    """The other messages are not printed, and no message counts as failed."""
    live.children.run("produce", "bytes", "--key", "k", *live.proxy, stdin="€\n".encode())
    consume = ("consume", "audit", "--count", 1, *live.proxy)
    refused = live.children.run(*consume, PYTHONIOENCODING="ascii")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "orderlane: '\\u20ac' has no form in ascii: change the locale\n"
    (message,) = json_lines(live.children.run(*consume).out)
    assert (message["body"], message["attempt"]) == ("€", 1)


def test_a_long_line_is_one_message(live: Live) -> None:
    line = b"x" * 300_000
    sent = live.children.run("produce", "bytes", *live.proxy, stdin=b"a\n" + line + b"\r\nb")
    assert sent.json == {"sent": 3}, sent.err
    consumed = live.children.run("consume", "audit", "--count", 3, *live.proxy)
    bodies = {message["body"].encode() for message in json_lines(consumed.out)}
    assert bodies == {b"a", line, b"b"}


@pytest.mark.parametrize("option", ["--rate", "--work-ms"])
def test_an_infinite_number_is_one_sentence(orderlane: CommandLine, option: str) -> None:
    verb = ["produce", "orders"] if option == "--rate" else ["consume", "billing"]
    assert "less than or equal to 1000000000" in orderlane.problem(*verb, option, "inf")


@pytest.mark.slow
def test_consume_ends_when_its_reader_closes_the_pipe(live: Live) -> None:
    """As in ``orderlane consume … | head -1``: no error output, and unprinted messages are
    redelivered.
    """
    live.children.run("produce", "orders", "--count", 50, *live.proxy)
    left = live.children.run_into_head("consume", "billing", *live.proxy)
    assert (left.code, left.err) == (1, "")
    rest = live.children.run("consume", "billing", "--until-idle", 4, *live.proxy)
    assert 0 < len(rest.out.splitlines()) < 50


def test_topics_are_listed(orderlane: CommandLine, live: Live) -> None:
    orderlane("produce", "orders", "--count", 1, *live.proxy)
    rows = {row["topic"]: row for row in orderlane("topics", *live.nameserver, "-o", "json").json}
    assert rows["orders"]["queues"] == 8
    assert rows["orders"]["brokers"] == "broker-a"
    assert rows["orders"]["messages"] >= 1
    assert not [topic for topic in rows if topic.startswith(("%OWN%", "TBW"))]
    table = orderlane("topics", "--all", *live.nameserver).out
    assert table.split()[:4] == ["topic", "brokers", "queues", "messages"]
    assert "TBW102" in table


def test_groups_and_their_lag_are_listed(orderlane: CommandLine, live: Live) -> None:
    orderlane("consume", "billing", "--until-idle", 0.5, *live.proxy)
    orderlane("produce", "orders", "--count", 10, *live.proxy)
    rows = {row["group"]: row for row in orderlane("groups", *live.http, "-o", "json").json}
    assert rows["billing"]["topic"] == "orders"
    assert rows["billing"]["order_key"] == "KEY"
    assert rows.keys() == {"audit", "billing"}
    queues = orderlane("lag", "billing", *live.http, *live.nameserver, "-o", "json").json
    assert len(queues) == 8
    assert sum(queue["lag"] for queue in queues) >= 10
    assert "committed" in orderlane("lag", "billing", *live.http, *live.nameserver).out


def test_lag_works_without_the_proxy_if_the_topic_is_given(
    orderlane: CommandLine, live: Live, unused_address: str
) -> None:
    orderlane("produce", "orders", "--count", 1, *live.proxy)
    shown = orderlane(
        *(
            "lag",
            "billing",
            "--topic",
            "orders",
            "--http",
            unused_address,
            *live.nameserver,
            "-o",
            "json",
        )
    )
    assert (shown.code, len(shown.json)) == (0, 8)
    assert shown.err.startswith(
        f"showing offsets only: no proxy answers at http://{unused_address}/"
    )


@pytest.mark.slow
def test_doctor_has_no_findings_for_a_healthy_installation(
    orderlane: CommandLine, live: Live
) -> None:
    for topic in ("orders", "bytes"):  # it does not exist before the first message
        orderlane("produce", topic, "--count", 1, *live.proxy)
    for _ in range(3):  # on a slow machine messages arrive after a consumer has stopped waiting
        for group, idle_s in (("audit", 0.5), ("billing", 2)):
            orderlane("consume", group, "--until-idle", idle_s, "--quiet", *live.proxy)
        found = orderlane("doctor", *live.nameserver, *live.http, "-o", "json")
        if found.code == 0:
            break
    assert {row["result"] for row in found.json} == {"ok"}, found.out
    assert found.code == 0


def test_doctor_names_missing_servers(orderlane: CommandLine, unused_address: str) -> None:
    found = orderlane(
        "doctor", "--nameserver", unused_address, "--http", unused_address, "-o", "json"
    )
    rows = {row["check"]: row for row in found.json}
    assert found.code == 1
    assert [name for name, row in rows.items() if row["result"] != "ok"] == [
        *("brokers", "proxy", "configuration", "groups")
    ]
    assert f"no nameserver of {unused_address} answers" in rows["brokers"]["finding"]
    assert "check that it is running" in rows["proxy"]["finding"]


def test_doctor_finds_wrong_settings(
    orderlane: CommandLine, tmp_path: Path, unused_address: str
) -> None:
    (tmp_path / "s.yaml").write_text("comit_every_s: 1")
    found = orderlane(
        *(
            "doctor",
            "--settings",
            tmp_path / "s.yaml",
            "--nameserver",
            unused_address,
            "--http",
            unused_address,
        )
    )
    assert "did you mean commit_every_s?" in found.out


def test_doctor_finds_a_nameserver_without_a_broker(
    orderlane: CommandLine, live: Live, unused_address: str
) -> None:
    alone = live.children.start("nameserver", "--listen", "127.0.0.1:0")
    at = alone.ready()["nameserver"]
    found = orderlane("doctor", "--nameserver", at, "--http", unused_address, "-o", "json")
    rows = {row["check"]: row for row in found.json}
    assert "no broker is registered" in rows["brokers"]["finding"]
    assert alone.terminate() == 0


def test_doctor_finds_messages_that_no_client_pulls(orderlane: CommandLine, live: Live) -> None:
    orderlane("consume", "billing", "--until-idle", 0.5, "--quiet", *live.proxy)
    orderlane("produce", "orders", "--count", 20, *live.proxy)
    causes: dict[str, str] = {}
    for _ in range(20):  # a client counts as present for a few seconds after it has left
        found = orderlane("doctor", *live.nameserver, *live.http, "-o", "json")
        causes = {row["group"]: row["cause"] for row in found.json if row["check"] == "group"}
        if causes.get("billing") == "no_puller":
            break
        time.sleep(1)
    assert causes["billing"] == "no_puller"
    assert found.code == 1


# ---- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tpoics"], "No such command 'tpoics'. Did you mean 'topics'?; see orderlane --help"),
        (["lag"], "Missing argument 'group'; see orderlane lag --help"),
        (["topics", "-o", "xml"], "'xml' is not one of 'table', 'wide', 'json'"),
        (["produce", "orders", "--count", "0"], "'--count'"),
        (["consume", "g", "--until-idle", "soon"], "'--until-idle'"),
        (["up", "--thrift-port", "65536"], "'--thrift-port'"),
        (["up", "--nonsense"], "No such option: --nonsense"),
        (["--log-level", "loud", "topics"], "invalid --log-level 'loud'"),
        (["broker", "--flush", "maybe"], "flush is 'maybe': should be 'sync' or 'async'"),
        (["broker", "--listen", "here"], "listen"),
        (["nameserver", "--listen", "here"], "'here' should be host:port"),
        (["proxy", "--nameserver", "here"], "nameserver"),
        (["topics", "--nameserver", "here"], "'here' should be host:port"),
        (["groups", "--http", "here"], "'here' should be host:port"),
        (["produce", "orders", "--count", "1", "--proxy", "a:b:c"], "expected host:port"),
        (["consume", "g", "--proxy", "a:b:c"], "expected host:port"),
        (["verify-history", "/nowhere/at/all"], "No such file or directory"),
        (["demo", "--flights", "some"], "january"),
    ],
)
def test_wrong_usage_is_one_sentence(
    orderlane: CommandLine, arguments: list[str], sentence: str
) -> None:
    assert sentence in orderlane.problem(*arguments)


@pytest.mark.parametrize("verb", ["up", "proxy"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("commit_every_s: often", "commit_every_s is 'often': should be a number"),
        ("comit_every_s: 1", "comit_every_s: unknown; did you mean commit_every_s?"),
        ("groups: [", "invalid YAML"),
        ("- a list", "should be settings"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_settings_file_is_one_sentence(
    orderlane: CommandLine, tmp_path: Path, verb: str, content: str | None, sentence: str
) -> None:
    path = tmp_path / "orderlane.yaml"
    if content is not None:
        path.write_text(content)
    problem = orderlane.problem(verb, "--settings", path)
    assert problem.startswith(str(path))
    assert sentence in problem


@pytest.mark.parametrize("verb", ["up", "broker"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("flush: sometimes", "flush is 'sometimes': should be 'sync' or 'async'"),
        ("flash: sync", "flash: unknown; did you mean flush?"),
        ("{", "invalid YAML"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_broker_settings_file_is_one_sentence(
    orderlane: CommandLine, tmp_path: Path, verb: str, content: str | None, sentence: str
) -> None:
    path = tmp_path / "broker.yaml"
    if content is not None:
        path.write_text(content)
    assert sentence in orderlane.problem(verb, "--broker-settings", path)


def test_names_that_do_not_exist_are_one_sentence(orderlane: CommandLine, live: Live) -> None:
    assert orderlane.problem("consume", "biling", *live.proxy).endswith(
        "there is no group 'biling' here; known groups: audit, billing"
    )
    assert "group 'billing' has no topic 'order'" in orderlane.problem(
        "consume", "billing", "order", *live.proxy
    )
    assert "there is no group 'biling'" in orderlane.problem(
        "lag", "biling", *live.http, *live.nameserver
    )
    assert orderlane.problem(
        "lag", "billing", "--topic", "nowhere", *live.http, *live.nameserver
    ).endswith("there is no topic 'nowhere': see orderlane topics")
    assert "orders!" in orderlane.problem("produce", "orders!", "--count", 1, *live.proxy)


def test_an_address_without_a_server_is_one_sentence(
    orderlane: CommandLine, unused_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert f"no nameserver of {unused_address} answers" in orderlane.problem(
        "topics", "--nameserver", unused_address
    )
    assert "check that it is running" in orderlane.problem("groups", "--http", unused_address)
    assert "check that it is running" in orderlane.problem(
        "lag", "billing", "--http", unused_address
    )
    assert f"no connection to {unused_address}" in orderlane.problem(
        "produce", "orders", "--count", 1, "--timeout", 2, "--proxy", unused_address
    )
    assert f"no connection to {unused_address}" in orderlane.problem(
        "consume", "billing", "--until-idle", 4, "--proxy", unused_address
    )
    assert "retrying" in caplog.text


def test_a_port_in_use_is_one_sentence(
    orderlane: CommandLine, tmp_path: Path, live: Live, unused_address: str
) -> None:
    port = unused_address.rpartition(":")[2]
    end = (
        f"cannot listen on {unused_address}: Address already in use; choose another port, or 0 for"
    )
    free = ("--data", tmp_path / "data", "--nameserver-port", 0, "--broker-port", 0)
    assert end in orderlane.problem("nameserver", "--listen", unused_address)
    assert end in orderlane.problem("broker", "--data", tmp_path / "b", "--listen", unused_address)
    assert end in orderlane.problem("proxy", "--thrift-port", port, "--http-port", 0)
    assert end in orderlane.problem("proxy", "--thrift-port", 0, "--http-port", port)
    assert end in orderlane.problem("up", *free, "--thrift-port", port, "--http-port", 0)
    assert end in orderlane.problem("up", *free[:2], "--nameserver-port", port)


def test_an_unusable_data_folder_is_one_sentence(
    orderlane: CommandLine, tmp_path: Path, live: Live
) -> None:
    foreign, future, file = (tmp_path / name for name in ("foreign", "future", "file"))
    for folder in (foreign, future):
        folder.mkdir()
    (foreign / "holiday.jpg").touch()
    (future / "format").write_text("orderlane-store 9\n")
    file.touch()
    listen = ("--listen", "127.0.0.1:0")
    assert "contains files of another program (holiday.jpg)" in orderlane.problem(
        "broker", "--data", foreign, *listen
    )
    assert "has format 'orderlane-store 9'" in orderlane.problem(
        "broker", "--data", future, *listen
    )
    assert "cannot be used" in orderlane.problem("broker", "--data", file, *listen)
    assert f"is in use by another broker (process {live.up.process.pid})" in orderlane.problem(
        "broker", "--data", live.data, *listen
    )


@pytest.mark.parametrize(
    "verb",
    [
        ["nameserver", "--listen", "127.0.0.1:0"],
        ["broker", "--listen", "127.0.0.1:0"],
        ["proxy", "--thrift-port", "0", "--http-port", "0"],
        ["produce", "orders", "--count", "1"],
        ["consume", "billing"],
    ],
    ids=lambda verb: verb[0],
)
def test_an_unwritable_history_is_one_sentence(
    orderlane: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    problem = orderlane.problem(*verb, "--history", tmp_path / "file" / "folder")
    assert problem.startswith(f"history {tmp_path}/file/folder/{verb[0]}-{os.getpid()}.jsonl: ")
    assert "cannot be written: Not a directory" in problem


def test_a_line_without_tab_is_named_and_earlier_lines_are_sent(live: Live) -> None:
    produce = ("produce", "bytes", "--keyed", *live.proxy)
    for line, why in (
        (b"no tab", "has no tab: expected KEY, tab, body"),
        (b"a\t", "has no body behind its tab"),
    ):
        sent = live.children.run(*produce, stdin=b"a\t1\n" + line + b"\n")
        assert (sent.code, sent.out) == (2, "")
        assert sent.err == f"orderlane: line 2 of stdin {why}; the lines before it are sent\n"
        consumed = live.children.run("consume", "audit", "--count", 1, *live.proxy)
        assert [message["body"] for message in json_lines(consumed.out)] == ["1"]


def test_a_key_of_invalid_utf_8_is_refused_not_replaced(live: Live) -> None:
    lines = b"\377\tA\n\376\tB\n"
    sent = live.children.run("produce", "orders", "--keyed", *live.proxy, stdin=lines)
    assert (sent.code, sent.out) == (2, "")
    why = "the key in line 1 of stdin is not UTF-8: b'\\xff'; the lines before it are sent"
    assert sent.err == f"orderlane: {why}\n"


# ---- help ----------------------------------------------------------------------------------------


def test_every_verb_and_option_has_a_help_text(orderlane: CommandLine) -> None:
    from typer.main import get_command

    from proxy.cli.main import app_of

    command = get_command(app_of())
    for name, verb in command.commands.items():  # type: ignore[attr-defined]
        assert verb.help, name
        for parameter in verb.params:
            assert parameter.help, f"{name} {parameter.name}"
        shown = orderlane(name, "--help")
        assert (shown.code, shown.err) == (0, "")
        assert f"orderlane {name}" in shown.out
