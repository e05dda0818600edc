"""Nothing that a stranger wrote commands the terminal of an operator."""

from __future__ import annotations

import orjson
import pytest

from proxy.cli.output import (
    OutputFormat,
    print_json,
    print_json_line,
    print_rows,
    print_text,
    say,
)
from proxy.cli.verify_history import print_report
from proxy.diagnosis.findings import typed
from proxy.history.findings import Counts, Report, Violation

_HOSTILE = "k\x1b]0;title\x07\x9b2J\u202e\u2066\x7f"
_OBEYED = "\x1b\x07\x9b\u202e\u2066\x7f"


def _written(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert not set(_OBEYED) & set(text)
    return text


@pytest.mark.parametrize("output", OutputFormat)
def test_rows(output: OutputFormat, capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"key": _HOSTILE, "n": 1}], columns=["key", "n"], output=output)
    text = _written(capsys)
    if output is OutputFormat.JSON:
        assert orjson.loads(text) == [{"key": _HOSTILE, "n": 1}]
    else:
        assert "\\x1b]0;title" in text


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({_HOSTILE: [_HOSTILE]})
    assert orjson.loads(_written(capsys)) == {_HOSTILE: [_HOSTILE]}
    print_json_line(orjson.dumps({"body": _HOSTILE}))
    assert orjson.loads(_written(capsys)) == {"body": _HOSTILE}


def test_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"key {_HOSTILE} is parked")
    print_text(f"two lines\nof {_HOSTILE}")
    assert "two lines\nof k\\x1b" in _written(capsys)
    assert not set(_OBEYED) & set(typed("key", "show", _HOSTILE))


def test_violations_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counts(*[0] * 10)
    print_report(Report(counts, {"O1": Violation(1, [f"key {_HOSTILE}"])}))
    assert "key k\\x1b" in _written(capsys)
