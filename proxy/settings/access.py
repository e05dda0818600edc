"""Settings of authentication and authorization: tokens, certificates and access rules."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, model_validator

from proxy.core.access.rights import Right, Rule
from proxy.core.limits.quotas import Quota
from proxy.settings.types import Bytes, Count, Rate, Seconds, SettingsGroup, named_once, some

Name = Annotated[str, Field(min_length=1, max_length=64)]
Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=255)], ...], AfterValidator(some)
]


def _sha256(value: str) -> str:
    if len(value) != 64 or not set(value.lower()) <= set("0123456789abcdef"):
        raise ValueError("should be 64 hexadecimal digits, as orderlane token prints them")
    return value.lower()


def _instant(value: object) -> object:
    """Read a day as its beginning in UTC."""
    if isinstance(value, str) and len(value) == 10:
        value = date.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    return value


class TokenSettings(SettingsGroup):
    """One accepted token."""

    name: Name
    """Name of the token, for people."""
    sha256: Annotated[str, AfterValidator(_sha256)]
    """SHA-256 of the token, 64 hexadecimal digits; `orderlane token` prints both."""
    principal: Name | None = None
    """Principal for access rules; null: the token's name. Two tokens of one principal allow
    rotation."""
    expires: Annotated[AwareDatetime, BeforeValidator(_instant)] | None = None
    """Time from which the token is refused: a day, from its beginning in UTC, or a time with its
    zone, such as 2027-03-31T18:00:00+02:00. null: never."""

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
    """Groups that the rights apply to, for transactions producer groups; * matches any text."""
    topics: Patterns = ("*",)
    """Topics that the rights apply to; * matches any text. Names that begin with %, such as dead
    letters, match only patterns that begin with %."""

    @property
    def rule(self) -> Rule:
        """The rule in the core's form."""
        return Rule(self.principals, frozenset(self.may), self.groups, self.topics)


class JwtPrincipalSettings(SettingsGroup):
    """The principal of all JWTs with one value of a claim."""

    claim: Annotated[str, Field(min_length=1, max_length=255)]
    """Name of the claim, such as groups."""
    value: Annotated[str, Field(min_length=1, max_length=255)]
    """Its value; if the claim is a list, one of its values."""
    principal: Name
    """Principal for access rules."""


def _keys_url(value: str) -> str:
    parts = urlsplit(value)
    loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not parts.hostname or parts.scheme not in (("https", "http") if loopback else ("https",)):
        raise ValueError("should be an https:// URL; http:// is allowed on loopback only")
    return value


#: Signatures by private keys only: no "none", and no shared secret that a public key could pose as.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


class JwtSettings(SettingsGroup):
    """Tokens of an OpenID Connect provider: signed JWTs, in place of a token of the settings."""

    issuer: Annotated[str, Field(min_length=1)]
    """Required value of the claim iss."""
    audience: Annotated[str, Field(min_length=1)]
    """Value that the claim aud has to contain: the name of this gateway at the provider."""
    jwks_url: Annotated[str, AfterValidator(_keys_url)]
    """URL of the provider's public keys (JWKS); https, or http on loopback."""
    ca: Annotated[str, Field(min_length=1)] | None = None
    """File with the authorities for that URL, in PEM; null: the system's."""
    algorithms: Annotated[tuple[Algorithm, ...], AfterValidator(some)] = ("RS256", "ES256", "EdDSA")
    """Accepted signature algorithms."""
    principal_claim: Annotated[str, Field(min_length=1, max_length=255)] = "sub"
    """Claim with the caller's name. It should be one that callers cannot choose."""
    principal_prefix: Annotated[str, Field(max_length=32)] = "oidc:"
    """Text before that name in the principal, so that no caller of the provider gets the name of
    a token or certificate."""
    principals: tuple[JwtPrincipalSettings, ...] = ()
    """Principals by claim; the first entry that matches counts. Empty: by principal_claim.
    Otherwise a JWT that matches no entry is refused."""
    clock_skew_s: Annotated[float, Field(strict=True, ge=0, le=300)] = 30.0
    """Seconds by which the clocks of provider and proxy may differ."""
    refresh_s: Seconds = 300.0
    """Seconds between two reads of the keys. An unknown key causes a read at once, at most every
    10 s. If the provider cannot be reached, the previous keys stay in use."""


#: Seconds of the event loop per second.
Share = Annotated[float, Field(strict=True, gt=0, le=1)]


class QuotaSettings(SettingsGroup):
    """Limits of one caller at one proxy, over all of its connections; null: unlimited."""

    requests_per_s: Rate | None = None
    """Maximum requests a second, with bursts of one second's worth."""
    bytes_per_s: Bytes | None = None
    """Maximum bytes a second of requests and answers, with bursts of one second's worth."""
    loop_share: Share | None = None
    """Maximum seconds of the proxy's event loop per second, from 0 to 1."""
    connections: Count | None = None
    """Maximum number of connections, without those that only ack and extend."""
    topics: Count | None = None
    """Maximum number of distinct topics used in an hour."""
    groups: Count | None = None
    """Maximum number of distinct groups used in an hour."""

    @property
    def quota(self) -> Quota:
        """The quota in the core's form."""
        return Quota(**{name: getattr(self, name) for name in QuotaSettings.model_fields})


class PrincipalQuotaSettings(QuotaSettings):
    """The quota of one principal. Limits that are not given are the default's."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    """The principal."""


class QuotasSettings(SettingsGroup):
    """Quotas: limits of callers. Callers without a valid token are charged to their address."""

    default: QuotaSettings = QuotaSettings()
    """Quota of each principal, and of each address without one."""
    principals: Annotated[tuple[PrincipalQuotaSettings, ...], AfterValidator(named_once)] = ()
    """Quotas of principals that differ from the default."""

    @model_validator(mode="after")
    def _inherit(self) -> Self:
        given = self.default.model_dump()
        principals = tuple(
            each.model_copy(update={**given, **each.model_dump(exclude_unset=True)})
            for each in self.principals
        )
        object.__setattr__(self, "principals", principals)  # frozen, but not yet in use
        return self
