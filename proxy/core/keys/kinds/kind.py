"""A kind of order key: the texts of settings that it takes, and the rules that it makes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.core.keys.order_key import Keyed, OrderKey


class Candidates(Protocol):
    """Names order keys of one kind that a sample of messages has."""

    def __call__(self, messages: Sequence[Keyed], /) -> list[str]:
        """Return texts that ``compile_order_key`` takes, the best known first."""


@dataclass(frozen=True, slots=True)
class KeyKind:
    """One kind. Its words stand in error sentences, help texts, documents and the chart."""

    name: str
    """As lists of the kinds name it: ``KEY``, ``a JSON path``."""
    meaning: str
    """As the description of the setting names it, without the example."""
    mark: str
    """The text itself, or, with ``is_prefix``, its beginning."""
    compile: Callable[[str], OrderKey]
    """Compiles a text with the mark. Raises ValueError with the reason, half a sentence."""
    candidates: Candidates
    is_prefix: bool = False
    example: str = ""
    """A text of the kind; empty where the mark is the only one."""
    grammar: str = ""
    """The standard that texts of the kind follow, in parentheses."""

    def takes(self, text: str) -> bool:
        """Return True if *text* is of this kind, well-formed or not."""
        return text.startswith(self.mark) if self.is_prefix else text == self.mark

    @property
    def with_example(self) -> str:
        """The name, with the example if there is one."""
        return self.name + self._such_as

    @property
    def described(self) -> str:
        """The meaning, with the example if there is one."""
        return self.meaning + self._such_as

    @property
    def _such_as(self) -> str:
        return f" such as {self.example}" if self.example else ""
