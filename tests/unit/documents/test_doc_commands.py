"""Commands in the documents exist, and the search for commands finds all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_words import verbs
from tests.support.doc_commands import (
    Command,
    blocks_of,
    commands_of,
    inline_commands,
    is_simple,
    parts_of,
)
from tests.support.doc_exceptions import NOT_RUN, row_of, stale_rows
from tests.support.doc_words import (
    DOCUMENTS,
    FOREIGN_OPTIONS,
    PAGES,
    all_in,
    blocks_in,
    commands_in,
    hidden_commands,
    name_of,
    option_problem,
    options_in,
    problem_of,
)

PAGE = """# A page

Begin with `orderlane doctor
billing`, not with ``make up`` or `GET /healthz`:

```sh
# a word before
export A=1            # and one behind
orderlane lag billing \\
    -o json | head -2 > lag.txt
cat > orders.yaml <<'EOF'
orderlane is no command here
EOF
orderlane produce orders --tag 'one
two'
```

As `orders.yaml`:

```yaml
groups: []
```

    orderlane topics
    orderlane groups

```
$ orderlane token me
- {name: me}
the token

$ make up
```

- a list

    with more of its text
"""


def found(page: str) -> list[tuple[int, str]]:
    return [(command.line, command.text) for command in commands_of(blocks_of("page.md", page))]


# ---- what there is -------------------------------------------------------------------------------


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_documented_commands_exist(page: Path) -> None:
    """Checks verbs, options and the forms of their values, make targets, modules, and shell
    syntax.
    """
    wrong = [problem_of(command) for command in all_in(page)]
    wrong += [option_problem(command) for command in options_in(page)]
    assert [each for each in wrong if each] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_all_commands_are_in_blocks_that_are_checked(page: Path) -> None:
    """Split a block of output or settings that also contains commands into two blocks."""
    assert hidden_commands(blocks_in(page)) == []


def test_exceptions_match_existing_commands() -> None:
    assert stale_rows([command for page in PAGES for command in commands_in(page)]) == set()
    assert all(len(reason) > 10 for reason in NOT_RUN.values())


def test_documented_jobs_of_spark_run_where_java_is() -> None:
    """``make test-slow`` needs Python alone: it would fail only there, half an hour later."""
    jobs = {verb for verb, command in verbs().items() if has_option(command, "master")}
    commands = [each for page in PAGES for each in commands_in(page)]
    shown = [each for each in commands if " ".join(parts_of(each.text)[0].words[1:3]) in jobs]
    assert shown
    assert [each for each in shown if row_of(each) is None] == []


def has_option(command: Any, name: str) -> bool:
    return any(parameter.name == name for parameter in command.params)


def test_listed_options_of_other_programs_are_used() -> None:
    named = {
        command.text.split(" ")[0].partition("=")[0]
        for page in DOCUMENTS
        for command in options_in(page)
    }
    assert named >= FOREIGN_OPTIONS.keys()


# ---- what finds it -------------------------------------------------------------------------------


def test_commands_are_found_with_their_lines() -> None:
    assert found(PAGE) == [
        (8, "export A=1            # and one behind"),
        (9, "orderlane lag billing \\\n    -o json | head -2 > lag.txt"),
        (11, "cat > orders.yaml <<'EOF'\norderlane is no command here\nEOF"),
        (14, "orderlane produce orders --tag 'one\ntwo'"),
        (24, "orderlane topics"),
        (25, "orderlane groups"),
        (28, "orderlane token me"),
        (32, "make up"),
    ]
    inline = [(each.line, each.text) for each in inline_commands("page.md", PAGE)]
    assert inline == [(3, "orderlane doctor billing"), (4, "make up")]


def test_output_of_commands_and_names_of_files_are_found() -> None:
    blocks = blocks_of("page.md", PAGE)
    shown = [command.shown for command in commands_of(blocks) if command.shown]
    assert shown == [("- {name: me}", "the token")]
    assert [(block.file, block.text) for block in blocks if block.file] == [
        ("orders.yaml", "groups: []\n")
    ]


def test_a_command_has_parts() -> None:
    words = {
        "A=1 orderlane lag g > a.txt 2>&1 && make up": [("orderlane", "lag", "g"), ("make", "up")],
        "orderlane token 'a|b' | head -1": [("orderlane", "token", "a|b"), ("head", "-1")],
        "orderlane topics # --nope": [("orderlane", "topics")],
        "cat > f <<EOF\nmake up\nEOF": [("cat",)],
    }
    for text, parts in words.items():
        assert [part.words for part in parts_of(text)][: len(parts)] == parts, text


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("orderlane lag g -o json  # > and | here", True),
        ("orderlane order-key rollout g '$.order.id' --reason 'a > b'", True),
        ("orderlane topics > topics.txt", False),
        ("A=1 orderlane topics", False),
        ("orderlane verify-history ~/histories", False),
    ],
)
def test_shell_syntax_is_recognized(text: str, alone: bool) -> None:
    assert is_simple(text) is alone


@pytest.mark.parametrize(
    "text", ["```sh\nmake up\n", "```sh\nmake 'up\n```", "```\nmore\n$ make up\n```"]
)
def test_unreadable_commands_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md:"):
        found(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("orderlane lagg billing", "No such command 'lagg'"),
        ("orderlane key prak billing k", "No such command 'prak'"),
        ("orderlane lag billing --nope", "No such option: --nope"),
        ("orderlane lag", "Missing argument 'group'"),
        ("orderlane key pause billing k", "Missing option '--reason'"),
        ("orderlane up --workers many", "valid integer"),
        ("orderlane topics | orderlane lag", "Missing argument 'group'"),
        ("orderlane", "no such option"),
        ("orderlane --nope", "no such option"),
        ("orderlane bench nothing", "No such command 'nothing'"),
        ("make nothing", "no target nothing"),
        ("make demo FLIHGTS=all", "knows no FLIHGTS"),
        ('make chaos ARGS="--sed 1"', "has no option --sed"),
        ("python -m bench.coeficients", "no module bench.coeficients"),
        ("python -m bench.coefficients --shrt", "has no option --shrt"),
        ("orderlane topics |", "syntax error"),
    ],
)
def test_an_invalid_command_is_found(text: str, problem: str) -> None:
    found = problem_of(Command("page.md", 7, text))
    assert found is not None
    assert found.startswith("page.md:7: ")
    assert problem in found


def test_inline_code_may_be_only_a_verb() -> None:
    def problem_in(text: str) -> str | None:
        return problem_of(Command("page.md", 7, text, inline=True))

    for right in ("orderlane lag", "orderlane key", "orderlane key park G", "orderlane up"):
        assert problem_in(right) is None
    assert problem_in("orderlane proxy --workers N") is None
    for wrong in ("orderlane kei", "orderlane lag --nope", "orderlane proxy --workers some"):
        assert problem_in(wrong) is not None


def test_options_that_stand_alone_are_checked_against_all_verbs() -> None:
    assert option_problem(Command("page.md", 7, "--settings FILE", inline=True)) is None
    assert option_problem(Command("page.md", 7, "--setings FILE", inline=True)) is not None


def test_a_command_in_another_kind_of_block_is_found() -> None:
    blocks = blocks_of("page.md", "```text\ntls: {}\n\norderlane up\n```")
    assert hidden_commands(blocks) == ["page.md:4: orderlane up"]


def test_an_exception_without_a_command_is_found() -> None:
    command = Command("page.md", 7, "make setup-run ARGS=-x")
    assert row_of(command) == ("make", "setup-run")
    assert row_of(Command("page.md", 7, "make settings")) is None
    assert stale_rows([command]) == NOT_RUN.keys() - {("make", "setup-run")}
