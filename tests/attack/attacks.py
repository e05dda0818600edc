"""The attacks, by the rows of SECURITY.md that they show."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import tests.attack
from testkit.processes import Children
from tests.attack.installation import Installation

Function = Callable[[Installation], str | Awaitable[str]]

_attacks: list[Attack] = []


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack and the answer that it must get."""

    rows: tuple[str, ...]
    """Attacks of SECURITY.md that it shows; the first is its title."""
    answer: str
    function: Function

    @property
    def name(self) -> str:
        """Return the name for ``--only``: module and function."""
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attack."""

    attack: Attack
    figure: str
    """What it measured; if it failed, what was wrong."""
    correct: bool
    seconds: float


def attack(
    title: str, *, answer: str, also: tuple[str, ...] = ()
) -> Callable[[Function], Function]:
    """Register the decorated function as an attack. See the package for its form."""

    def register(function: Function) -> Function:
        _attacks.append(Attack((title, *also), answer, function))
        return function

    return register


def all_attacks() -> list[Attack]:
    """Return the attacks of all modules of this package, in order of their names."""
    for module in pkgutil.iter_modules(tests.attack.__path__):
        if module.name != "__main__":
            importlib.import_module(f"tests.attack.{module.name}")
    return sorted(_attacks, key=lambda each: each.name)


def carry_out(each: Attack, folder: Path) -> Outcome:
    """Run an attack in *folder*; its processes end with it."""
    began = time.monotonic()
    try:
        with Children(folder) as children:
            figure = each.function(Installation(children))
            if inspect.isawaitable(figure):
                figure = asyncio.run(_awaited(figure))
        correct = True
    except Exception as error:  # whatever fails here, the attack has not shown its answer
        figure, correct = _one_line(error), False
    return Outcome(each, figure, correct, time.monotonic() - began)


async def _awaited(figure: Awaitable[str]) -> str:
    return await figure


def _one_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
