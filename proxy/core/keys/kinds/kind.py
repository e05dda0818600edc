"""A kind of order key: the setting texts that it accepts, and their compilation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.core.keys.order_key import Keyed, OrderKey


class Candidates(Protocol):
    """Finds the order keys of one kind in a sample of messages."""

    def __call__(self, messages: Sequence[Keyed], /) -> list[str]:
        """Return texts for ``compile_order_key``, the most likely first."""


@dataclass(frozen=True, slots=True)
class KeyKind:
    """One kind. Its texts appear in errors, help, documentation and the chart."""

    name: str
    """Name in lists of kinds: ``KEY``, ``a JSON path``."""
    meaning: str
    """Text in the description of the setting, without the example."""
    mark: str
    """The text itself, or, with ``is_prefix``, its beginning."""
    compile: Callable[[str], OrderKey]
    """Compiles a text that has the mark. Raises ValueError with the reason, as half a sentence."""
    candidates: Candidates
    is_prefix: bool = False
    example: str = ""
    """A text of the kind; empty if the mark is the only one."""
    grammar: str = ""
    """The standard that such texts follow, in parentheses."""

    def takes(self, text: str) -> bool:
        """Return True if *text* is of this kind, valid or not."""
        return text.startswith(self.mark) if self.is_prefix else text == self.mark

    @property
    def with_example(self) -> str:
        """The name, with the example if any."""
        return self.name + self._such_as

    @property
    def described(self) -> str:
        """The meaning, with the example if any."""
        return self.meaning + self._such_as

    @property
    def _such_as(self) -> str:
        return f" such as {self.example}" if self.example else ""
