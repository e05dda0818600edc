"""The command line's parsing of typed words, without running the verb."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer

from proxy.cli.main import app_of


@dataclass(frozen=True, slots=True)
class Typed:
    """A parsed verb. *parameters*: by their Python names, including defaults."""

    verb: str
    parameters: Mapping[str, Any]
    given: frozenset[str]
    """Return the parameters that differ from their defaults."""


@cache
def root() -> Any:
    """Return the command that contains all verbs."""
    return typer.main.get_command(app_of())


@cache
def verbs() -> dict[str, Any]:
    """Return the executable commands by the words that follow ``orderlane``."""
    return dict(_verbs(root(), ()))


@cache
def groups() -> frozenset[str]:
    """Return the groups of verbs, such as ``key``."""
    return frozenset(verb.rpartition(" ")[0] for verb in verbs() if " " in verb)


def _verbs(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if not below:
        yield " ".join(path), command
    for name, each in (below or {}).items():
        yield from _verbs(each, (*path, name))


def typed(words: Sequence[str]) -> Typed:
    """Parse *words* as typed after ``orderlane``. Raises typer.TyperException as the command line
    does.

    Only the checks of values run, so *words* must not begin with an option that acts by itself
    (``--install-completion``).
    """
    command, path = command_of(words)
    rest = list(words[len(path) :])
    with command.make_context(path[-1] if path else "orderlane", list(rest)) as context:
        if hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            command.resolve_command(context, rest)  # raises for an unknown name
        given = {
            name
            for name in context.params
            if getattr(context.get_parameter_source(name), "name", "DEFAULT") == "COMMANDLINE"
        }
        return Typed(" ".join(path), dict(context.params), frozenset(given))


def command_of(words: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the verb or group of verbs that *words* select, and the words that name it."""
    command, path = root(), list[str]()
    for word in words:
        if (below := _below(command, word)) is None:
            break
        command, path = below, [*path, word]
    return command, path


def _below(command: Any, name: str) -> Any:
    """Return the verb *name* of a group of verbs; None if there is none, or if it is no group."""
    return command.get_command(None, name) if hasattr(command, "commands") else None


def options() -> frozenset[str]:
    """Return all options of all verbs, including ``--help``."""
    found = {"--help"}
    case = root().commands["bench"].get_command(None, "keys")
    for command in (root(), case, *verbs().values()):
        for parameter in command.params:
            found.update(parameter.opts)
            found.update(parameter.secondary_opts)
    return frozenset(found)
