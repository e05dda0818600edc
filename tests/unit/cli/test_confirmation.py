"""Actions on many messages ask, and refuse where there is no terminal to ask at."""

from __future__ import annotations

import io
import sys

import pytest

from proxy.cli.confirmation import confirm, may_ask
from proxy.errors import OrderlaneError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["y", "YES", " y "])
def test_a_yes_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    confirm("delete it?\x1b", yes=False)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "delete it?\\x1b [y/N] ")


@pytest.mark.parametrize("answer", ["", "n\n", "\n", "yeah\n"])
def test_anything_else_changes_nothing(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    with pytest.raises(OrderlaneError, match="nothing was changed"):
        confirm("delete it?", yes=False)


def test_without_a_terminal_only_yes_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(OrderlaneError, match="then add --yes"):
        may_ask(False)
    with pytest.raises(OrderlaneError, match="then add --yes"):
        confirm("delete it?", yes=False)
    confirm("delete it?", yes=True)
