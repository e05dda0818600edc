"""Settings of authentication and authorization: tokens, certificates and access rules."""

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
    """One accepted token."""

    name: Name
    """Name of the token, for people."""
    sha256: Annotated[str, AfterValidator(_sha256)]
    """SHA-256 of the token, 64 hexadecimal digits; `orderlane token` prints both."""
    principal: Name | None = None
    """Principal for access rules; null: the token's name. Two tokens of one principal allow
    rotation."""

    @property
    def owner(self) -> str:
        """The principal."""
        return self.principal or self.name


class CertificateSettings(SettingsGroup):
    """Clients identified by their certificate; they need no token."""

    name: Name
    """Principal for access rules."""
    common_name: Annotated[str, Field(min_length=1, max_length=255)]
    """Common name in the subject of the certificate; its authority has to be in client_ca."""


class AccessSettings(SettingsGroup):
    """One rule: the rights of some principals."""

    principals: Patterns
    """Principals of tokens and names of certificates; * matches any text."""
    may: Annotated[tuple[Right, ...], AfterValidator(some)]
    """Rights: pull, produce, bulk and admin. admin is the HTTP port."""
    groups: Patterns = ("*",)
    """Groups that the rights apply to; * matches any text."""
    topics: Patterns = ("*",)
    """Topics that the rights apply to; * matches any text. Names that begin with %, such as dead
    letters, match only patterns that begin with %."""

    @property
    def rule(self) -> Rule:
        """The rule in the core's form."""
        return Rule(self.principals, frozenset(self.may), self.groups, self.topics)
