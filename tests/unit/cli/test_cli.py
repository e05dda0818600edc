from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from broker_core.errors import BrokerError, StoreError
from proxy.cli import main
from proxy.cli.output import OutputFormat, print_rows, say
from proxy.downstream.port.gate import Gate
from proxy.errors import NotAllowed, SettingsError
from proxy.net.principals import Principals
from proxy.settings.proxy_settings import load_settings
from tests.support.histories import Story
from thrift_idl import consumer

Run = Callable[..., int]


@pytest.fixture
def orderlane(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in this process and return its exit code."""

    monkeypatch.setattr(main, "configure_logs", lambda **_: None)

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["orderlane", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.run()
        return int(ended.value.code or 0)

    return run


def clean() -> Story:
    return Story().sent(0).sent(1).own(1).through(0, 1)


def test_a_clean_history_ends_with_0(
    orderlane: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean().write(tmp_path / "n.jsonl")
    assert orderlane("verify-history", tmp_path / "n.jsonl") == 0
    assert "violations 0" in " ".join(capsys.readouterr().out.split())


def test_a_folder_selects_its_histories_and_the_output_may_be_json(
    orderlane: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean().write(tmp_path / "n.jsonl")
    assert orderlane("verify-history", tmp_path, "-o", "json") == 0
    report = orjson.loads(capsys.readouterr().out)
    assert (report["sends"], report["violations"], report["lost"]) == (2, 0, 0)


def test_violations_are_printed_and_exit_with_1(
    orderlane: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story().sent(0).sent(1).own(1).through(1, 0)
    assert orderlane("verify-history", story.write(tmp_path / "n.jsonl")) == 1
    assert "O1: 1 violation\n  group billing, orders/broker-a_0: key 'k': offset 0 was" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"nonsense\nnonsense\n", "n.jsonl, line 1: not an event of a history"),
        (b"", "the histories contain no send: add those of the producers"),
        (None, "n.jsonl: cannot be read: No such file or directory"),
    ],
)
def test_unreadable_histories_exit_with_2_and_one_sentence(
    orderlane: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    sentence: str,
) -> None:
    if content is not None:
        (tmp_path / "n.jsonl").write_bytes(content)
    assert orderlane("verify-history", tmp_path / "n.jsonl") == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.startswith("orderlane: ")
    assert error.count("\n") == 1


def test_an_empty_folder_is_named(
    orderlane: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orderlane("verify-history", tmp_path) == 2
    assert "holds no history" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["verify-histroy"], ["verify-history"], ["--nonsense"]])
def test_wrong_usage_exits_with_2_and_no_traceback(
    orderlane: Run, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert orderlane(*arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_missing_choice_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run(["completion"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "orderlane: Missing argument 'shell'. Choose from: bash, zsh, fish; see orderlane"
        " completion --help\n"
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (SettingsError("x.yaml: a is 1: should be 2"), "x.yaml: a is 1: should be 2"),
        (StoreError("data: of format 9"), "data: of format 9"),
        (BrokerError(17, "no such topic"), "request was answered with code 17: no such topic"),
    ],
)
def test_errors_that_users_can_fix_are_one_sentence(
    orderlane: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    sentence: str,
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(main, "app_of", lambda _verbs: fail)
    assert orderlane() == 2
    assert capsys.readouterr().err == f"orderlane: {sentence}\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main, "app_of", lambda _verbs: fail)
    with pytest.raises(ZeroDivisionError):
        main.run()


def test_a_verb_imports_only_its_own_modules() -> None:
    """A broker or a checker starts in half the time that the imports of all verbs take."""
    look = (
        "import sys; from proxy.cli import main; main.app_of(['verify-history'])\n"
        "names = ('thin_client', 'proxy.settings.proxy_settings'); "
        "print(*(each for each in names if each in sys.modules))"
    )
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True, text=True)
    assert seen.stdout.split() == []


def test_a_closed_pipe_causes_no_error(tmp_path: Path) -> None:
    """As in ``orderlane … | head -1``."""
    story = Story()
    for offset in range(4000):
        story.sent(offset)
    path = story.own(1).through(*range(0, 4000, 2)).write(tmp_path / "n.jsonl")
    command = [sys.executable, "-m", "proxy.cli", "verify-history", str(path), "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


def test_a_base_installation_names_missing_packages() -> None:
    script = (
        "import sys; sys.modules['typer'] = None; from orderlane.command_line import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == (
        "orderlane: typer is not installed: the command line needs the extra 'server',"
        " as in pip install 'orderlane[server]'\n"
    )


def test_tables_and_json_show_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "orders", "lag": 12, "delay": None}, {"topic": "x", "lag": 1.5}]
    print_rows(rows, columns=["topic", "lag", "delay"], output=OutputFormat.TABLE)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "lag", "delay"]
    assert first.split() == ["orders", "12", "-"]
    assert second.split() == ["x", "1.50", "-"]
    print_rows(rows, columns=["topic"], output=OutputFormat.JSON)
    assert orjson.loads(capsys.readouterr().out) == rows


def test_a_row_of_a_wide_table_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{f"column {number}": "x" * 30 for number in range(10)}]
    print_rows(rows, columns=list(rows[0]), output=OutputFormat.TABLE)
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("words", [("--topic", ""), ("--topic=",), ("--queue", "")])
def test_an_empty_name_is_not_the_same_as_none(
    words: tuple[str, ...], orderlane: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orderlane("leases", "ls", "billing", *words) == 2
    assert f"{words[0].rstrip('=')} is empty: give a name" in capsys.readouterr().err


def test_a_token_is_printed_with_its_hash_for_the_settings(
    orderlane: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orderlane("token", "billing") == 0
    made, settings = capsys.readouterr().out.split("\n", 1)
    path = tmp_path / "orderlane.yaml"
    path.write_text(settings)
    gate = Gate(Principals(load_settings(path, environment={})), topics_of=lambda _group: [])
    gate.check("settle", CallWith(made))
    with pytest.raises(NotAllowed):
        gate.check("settle", CallWith(made[:-1]))

    assert orderlane("token", "billing", "-o", "json") == 0
    other = orjson.loads(capsys.readouterr().out)
    assert other["token"] != made
    assert other["sha256"] == hashlib.sha256(other["token"].encode()).hexdigest()


class CallWith:
    """Arguments of a settle with a token."""

    __slots__ = ("request",)

    def __init__(self, token: str) -> None:
        self.request = consumer.AckRequest(groupId="g", acks=[], token=token)


def test_control_characters_in_keys_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Producers choose keys and bodies, and operators print them."""
    key = "a\x1b]0;pwned\x07\x9b2J\u202e\rb"
    print_rows(
        [{"key": key, "body": "{\n\t1\n}"}], columns=["key", "body"], output=OutputFormat.TABLE
    )
    say(f"key {key}\nis blocked")
    shown = capsys.readouterr()
    harmless = r"a\x1b]0;pwned\x07\u009b2J\u202e\x0db"
    assert harmless in shown.out
    assert shown.err == f"key {harmless}\nis blocked\n"
    assert shown.out.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize("words", [(), ("key",), ("offsets",)])
def test_without_a_verb_only_the_help_is_printed(
    orderlane: Run, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert orderlane(*words) == 2
    shown = capsys.readouterr()
    assert ("Usage: orderlane" in shown.out, shown.err) == (True, "")
