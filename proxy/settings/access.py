"""Settings of who may do what: tokens, certificates, and the rules for those whom they name."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from proxy.core.access.rights import Right, Rule
from proxy.settings.types import SettingsGroup, some

Name = Annotated[str, Field(min_length=1, max_length=64)]
Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=255)], ...], AfterValidator(some)
]


def _sha256(value: str) -> str:
    if len(value) != 64 or not set(value.lower()) <= set("0123456789abcdef"):
        raise ValueError("should be 64 hexadecimal digits, as orderlane token prints them")
    return value.lower()


class TokenSettings(SettingsGroup):
    """One token that clients may show."""

    name: Name
    """What it is called; for people."""
    sha256: Annotated[str, AfterValidator(_sha256)]
    """SHA-256 of the token, 64 hexadecimal digits; `orderlane token` makes both."""
    principal: Name | None = None
    """Who shows it, as rules of access call them; null: as the token is called. Two tokens of one
    principal let its clients change from one to the next."""

    @property
    def owner(self) -> str:
        """The principal."""
        return self.principal or self.name


class CertificateSettings(SettingsGroup):
    """Clients who are known by their certificate; they need no token."""

    name: Name
    """Who they are, as rules of access call them."""
    common_name: Annotated[str, Field(min_length=1, max_length=255)]
    """The common name in the subject of their certificate; its authority stands in client_ca."""


class AccessSettings(SettingsGroup):
    """One rule: what some principals may do."""

    principals: Patterns
    """Names of tokens' principals and of certificates; * stands for any text."""
    may: Annotated[tuple[Right, ...], AfterValidator(some)]
    """What they may do, of pull, produce, bulk and admin. admin is the HTTP port."""
    groups: Patterns = ("*",)
    """The groups that they may do it to; * stands for any text."""
    topics: Patterns = ("*",)
    """The topics that they may do it to; * stands for any text. Those whose names begin with %, as
    dead letters do, are let by names alone that begin so too."""

    @property
    def rule(self) -> Rule:
        """As the core knows it."""
        return Rule(self.principals, frozenset(self.may), self.groups, self.topics)
