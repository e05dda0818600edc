"""Every verb's help ends with examples that parse, and shells complete verbs and options."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer

from proxy.cli.examples import all_examples
from testkit.processes import ROOT
from tests.support.cli_words import typed, verbs

VERBS, EXAMPLES = verbs(), all_examples()


def test_examples_belong_to_existing_verbs() -> None:
    assert EXAMPLES.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_help_ends_with_examples_that_parse(verb: str) -> None:
    assert EXAMPLES[verb]
    assert VERBS[verb].help, "and begins with what the verb does"
    *_, last = VERBS[verb].epilog.split("\n\n")
    assert last == f"orderlane {EXAMPLES[verb][-1]}"
    for example in EXAMPLES[verb]:
        words = shlex.split(example.partition(" > ")[0].partition(" < ")[0])
        assert typed(words).verb in (verb, verb.removesuffix(" ls"))


def test_an_invalid_example_is_found() -> None:
    for words in (["lag"], ["lag", "g", "--nope"], ["keys", "top", "g", "--limit", "0"]):
        with pytest.raises(typer.TyperException):
            typed(words)


NUMBERS = [
    (verb, each.opts[0])
    for verb, command in VERBS.items()
    if not verb.startswith("bench")
    for each in command.params
    if each.type_descriptor.annotation is float
]


@pytest.mark.parametrize("given", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(("verb", "option"), NUMBERS)
def test_options_that_are_numbers_are_finite(verb: str, option: str, given: str) -> None:
    """Most ranges have no maximum, and a wait without end or of no length is never meant."""
    words = shlex.split(EXAMPLES[verb][0].partition(" > ")[0].partition(" < ")[0])
    with pytest.raises(typer.TyperException, match=r"finite number|greater than|less than"):
        typed([*words, f"{option}={given}"])


def test_there_are_options_that_are_numbers() -> None:
    assert ("order-key rollout", "--timeout") in NUMBERS


def _completed(**environment: str) -> list[str]:
    """Return completions of ``orderlane`` for a shell, each with its own timeout."""
    given = {"PYTHONPATH": str(ROOT), **environment}
    ended = subprocess.run(
        [sys.executable, "-m", "proxy.cli"],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr == ""
    return ended.stdout.split("\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "at", "found"),
    [
        ("orderlane gro", 1, ["groups"]),
        ("orderlane groups pa", 2, ["pause"]),
        ("orderlane doctor --name", 2, ["--nameserver"]),
    ],
)
def test_bash_completes_verbs_and_options(typed: str, at: int, found: list[str]) -> None:
    shown = _completed(_ORDERLANE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(at))
    assert [each for each in shown if each] == found


@pytest.mark.slow
def test_zsh_and_fish_receive_descriptions_of_verbs() -> None:
    for shell in ("zsh", "fish"):
        shown = _completed(
            _ORDERLANE_COMPLETE=f"complete_{shell}",
            _TYPER_COMPLETE_ARGS="orderlane keys ",
            _TYPER_COMPLETE_FISH_ACTION="get-args",
        )
        assert any("hot" in each and "largest shares" in each for each in shown), (
            shell,
            shown,
        )


def test_a_shell_loads_the_script(tmp_path: Any) -> None:
    """Uses a real bash: the completion is registered, and its function calls the command."""
    script = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "completion", "bash"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    (tmp_path / "orderlane").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m proxy.cli "$@"\n'
    )
    (tmp_path / "orderlane").chmod(0o755)
    asked = (
        f"{script}\nCOMP_WORDS=(orderlane owners d); COMP_CWORD=2\n"
        "_orderlane_completion orderlane; complete -p orderlane; echo ${COMPREPLY[@]}"
    )
    ended = subprocess.run(
        ["bash", "-c", asked],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout.split("\n")[:2] == [
        "complete -o default -F _orderlane_completion orderlane",
        "drain",
    ]
