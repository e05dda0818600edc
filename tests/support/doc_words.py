"""Check documented commands against the command line, the Makefile and the modules.

Nothing is run: ``tests/integration/documents/test_documents_run.py`` does that.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import typer

from testkit.processes import ROOT
from tests.support.cli_words import groups, options, root, typed
from tests.support.doc_commands import (
    Block,
    Command,
    begins_like_a_command,
    blocks_of,
    commands_of,
    inline_commands,
    inline_options,
    parts_of,
)

#: Documents whose commands are checked. Those of ``PAGES`` are also run.
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
DOCUMENTS = (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md")
#: Options that stand alone in inline code and belong to programs other than ``orderlane``.
FOREIGN_OPTIONS = {
    "--require-hashes": "pip, in SECURITY.md",
    "--short": "python -m bench.coefficients, in docs/scale.md",
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def blocks_in(page: Path) -> tuple[Block, ...]:
    """Return all code blocks of a document."""
    return tuple(blocks_of(name_of(page), page.read_text()))


@cache
def commands_in(page: Path) -> tuple[Command, ...]:
    """Return the commands of a document's blocks."""
    return tuple(commands_of(blocks_in(page)))


def all_in(page: Path) -> list[Command]:
    """Return the commands of a document's blocks and inline code."""
    return [*commands_in(page), *inline_commands(name_of(page), page.read_text())]


def options_in(page: Path) -> list[Command]:
    """Return inline code that begins with an option."""
    return list(inline_options(name_of(page), page.read_text()))


def option_problem(command: Command) -> str | None:
    """Return the error of an option that stands by itself; None if it exists."""
    option = re.split("[ =]", command.text)[0]
    if option in options() or option in FOREIGN_OPTIONS:
        return None
    return f"{command}: no verb has the option {option}"


def hidden_commands(blocks: Sequence[Block]) -> list[str]:
    """Return lines that look like commands but are in blocks that are not checked."""
    return [
        f"{block.page}:{block.line + number}: {line}"
        for block in blocks
        if block.language in ("", "text") and not block.has_commands
        for number, line in enumerate(block.lines)
        if begins_like_a_command(line)
    ]


def problem_of(command: Command) -> str | None:
    """Return the error of a command, with page and line; None if none shows without running it."""
    for part in parts_of(command.text):
        wrong = None
        if part.program == "orderlane":
            wrong = _wrong_verb(part.words[1:], inline=command.inline)
        elif part.program == "make":
            wrong = _wrong_target(part.words[1:])
        elif part.words[:2] in (("python", "-m"), ("python3", "-m")):
            wrong = _wrong_module(part.words[2], part.words[3:])
        if wrong is not None:
            return f"{command}: {wrong}"
    return None if command.inline else _wrong_shell(command)


def _wrong_verb(words: Sequence[str], *, inline: bool) -> str | None:
    if not words or words[0].startswith("--"):
        known = {option for parameter in root().params for option in parameter.opts}
        return None if words and words[0] in known else f"no such option of orderlane: {words[:1]}"
    if inline and " ".join(words) in groups():
        return None
    try:
        typed(words)
    except typer.TyperException as error:
        if inline and _leaves_out(words, error):
            return None
        return error.format_message().strip()
    return None


def _leaves_out(words: Sequence[str], error: typer.TyperException) -> bool:
    """Return whether inline code may cause *error*: it may lack arguments or use N as a number."""
    missing = type(error).__name__ == "MissingParameter"
    return missing or (type(error).__name__ == "BadParameter" and "N" in words)


@cache
def _makefile() -> tuple[frozenset[str], frozenset[str]]:
    """Return the Makefile's targets and the names of its variables."""
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([\w-]+):(?!=)", text, flags=re.M)
    return frozenset(targets), frozenset(re.findall(r"^(\w+) \?=", text, flags=re.M))


def _wrong_target(words: Sequence[str]) -> str | None:
    targets, names = _makefile()
    more: list[str] = []
    for word in words:
        name, is_set, value = word.partition("=")
        if is_set and name not in names:
            return f"the Makefile knows no {name}"
        if not is_set and word not in targets:
            return f"the Makefile has no target {word}"
        if name == "ARGS":
            more = shlex.split(value)
    (target, *_) = (word for word in words if "=" not in word)
    if more and (module := _module_of(target)) is not None:
        return _wrong_module(module, more)
    return None


def _module_of(target: str) -> str | None:
    """Return the module that receives ``ARGS``."""
    recipe = re.search(
        rf"^{target}:.*\n(?:\t.*\n)*?\t.*python -m ([\w.]+).*ARGS",
        (ROOT / "Makefile").read_text(),
        flags=re.M,
    )
    return None if recipe is None else recipe[1]


def _wrong_module(module: str, words: Sequence[str]) -> str | None:
    if module == "venv":
        return None
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        return f"there is no module {module}"
    folders = list(found.submodule_search_locations or ())
    files = [file for folder in folders for file in Path(folder).glob("*.py")]
    text = "".join(file.read_text() for file in files or [Path(str(found.origin))])
    if "tests.support.suites" in text:  # the options of all suites
        text += (ROOT / "tests/support/suites.py").read_text()
    for option in (word.partition("=")[0] for word in words if word.startswith("--")):
        typer_name = option.removeprefix("--").replace("-", "_")
        if f'"{option}"' not in text and not re.search(rf"^    {typer_name}: ", text, flags=re.M):
            return f"{module} has no option {option}"
    return None


def _wrong_shell(command: Command) -> str | None:
    """Return the shell's syntax error, from parsing the command without running it."""
    read = subprocess.run(
        ["bash", "-n"], input=command.text, capture_output=True, text=True, timeout=60, check=False
    )
    return None if read.returncode == 0 else f"{command}: {read.stderr.strip()}"
