"""Tables fit the terminal, unless everything is asked for or the output is not a terminal."""

from __future__ import annotations

import io
import re
import sys

import pytest

from proxy.cli import main
from proxy.cli.output import OutputFormat, print_preview, print_rows

ROWS = [{"name": "long " * 20, "count": 1234567890, "why": "because " * 20}]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO, output: OutputFormat) -> str:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", stdout)
    print_rows(ROWS, columns=("name", "count", "why"), output=output)
    return re.sub(r"\x1b\[[0-9;]*m", "", stdout.getvalue())


def test_a_table_fits_the_terminal_and_shortens_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, Terminal(), OutputFormat.TABLE)
    lines = text.splitlines()
    assert len(lines) == 2, "one line for each row"
    assert max(map(len, lines)) <= 60
    assert "…" in text
    assert "1234567890" in text


@pytest.mark.parametrize(
    ("stdout", "output"),
    [(Terminal(), OutputFormat.WIDE), (io.StringIO(), OutputFormat.TABLE)],
)
def test_everything_is_shown_when_asked_and_in_pipes(
    monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO, output: OutputFormat
) -> None:
    text = printed(monkeypatch, stdout, output)
    assert ("because " * 20).strip() in text
    assert "…" not in text


def test_wide_is_a_short_form(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "configure_logs", lambda **_: None)
    with pytest.raises(SystemExit):
        main.run(["lag", "g", "--wide", "--http", "127.0.0.1:1"])
    assert "no proxy answers" in capsys.readouterr().err


def test_a_preview_leaves_stdout_to_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    print_preview(ROWS, columns=("count",))
    captured = capsys.readouterr()
    assert (captured.out, captured.err.split()) == ("", ["count", "1234567890"])


def test_the_version_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run(["--version"])
    assert ended.value.code in (0, None)
    assert capsys.readouterr().out.startswith("orderlane 0.")


def test_a_row_of_any_width_is_one_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stdout)
    row = {"key": "k" * 30_000, "why": "because " * 2_000, "count": 1234567890}
    print_rows([row, row], columns=tuple(row), output=OutputFormat.TABLE)
    _, *lines = stdout.getvalue().splitlines()
    assert [line.split() for line in lines] == [
        ["k" * 30_000, *["because"] * 2_000, "1234567890"]
    ] * 2
