"""JWTs of an OpenID Connect provider: PyJWT checks signature, issuer and audience. No I/O.

``signing_keys`` reads the provider's public keys. Only signatures by private keys are accepted, and
a key only for the algorithms of its own type, so neither ``none`` nor a public key used as a shared
secret passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from broker_core.clock import wall_ms
from proxy.errors import OrderlaneError
from proxy.net.principals import Identity
from proxy.settings.access import JwtSettings

#: Longest token, in characters, and most keys of a provider.
MOST_CHARS, MOST_KEYS = 8_192, 100
#: Valid tokens whose check is remembered, by digest.
_MOST_REMEMBERED = 4_096
_MOST_NAME_CHARS = 255
#: Latest time in a claim, seconds since 1970.
_LATEST_S = 2**53


class JwtTokens:
    """Verifies JWTs by *settings*. Without keys every token is refused.

    Raises OrderlaneError if PyJWT is not installed.
    """

    def __init__(
        self, settings: JwtSettings, *, wall_clock_ms: Callable[[], int] = wall_ms
    ) -> None:
        try:
            import jwt  # only where the setting jwt is used
        except ModuleNotFoundError as error:
            raise OrderlaneError(
                f"jwt: {error.name} is not installed: add pyjwt[crypto], as in the extra 'server'"
            ) from None
        self._jwt = jwt
        self._settings = settings
        self._wall_ms = wall_clock_ms
        self._keys: dict[str, Any] = {}
        self._entries: dict[str, Any] = {}  # of the provider's document, by the key's id
        self._valid: dict[bytes, tuple[str, float]] = {}  # principal and end, s since 1970
        #: Called for a token of an unknown key.
        self._on_unknown_key: Callable[[], None] | None = None

    @property
    def keys(self) -> frozenset[str]:
        """Ids of the provider's keys."""
        return frozenset(self._keys)

    def call_on_unknown_key(self, callback: Callable[[], None]) -> None:
        """Set the callback for a token of an unknown key."""
        self._on_unknown_key = callback

    def use_keys(self, document: Any) -> None:
        """Use the keys of *document*, a JWKS decoded from JSON, from now on.

        Keys without an id, for another use or of a type without a private part are left out. Raises
        ValueError, and keeps the previous keys, if none is left.
        """
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list) or len(entries) > MOST_KEYS:
            raise ValueError(f"should be a JSON object with at most {MOST_KEYS} keys")
        found, used = {}, {}
        for entry in entries:
            if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
                continue
            if entry.get("kty") not in ("RSA", "EC", "OKP") or not entry.get("kid"):
                continue
            try:
                found[str(entry["kid"])] = (self._jwt.PyJWK(entry), entry.get("alg"))
            except (self._jwt.PyJWTError, TypeError):
                continue
            used[str(entry["kid"])] = entry
        if not found:
            raise ValueError("contains no public key with an id for signatures")
        if used != self._entries:
            self._valid.clear()  # a key may have been withdrawn, or replaced under its id
        self._keys, self._entries = found, used

    def identify(self, token: str) -> Identity | None:
        """Return the caller of *token*; None if it is no JWT."""
        if token.count(".") != 2 or not token.startswith("eyJ"):
            return None
        if len(token) > MOST_CHARS:
            return Identity(None, f"is a JWT of more than {MOST_CHARS} characters")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        now_s = self._wall_ms() / 1000
        if (known := self._valid.get(digest)) is not None and now_s < known[1]:
            return Identity(known[0])
        self._valid.pop(digest, None)
        try:
            claims = self._claims(token, now_s)
            principal = self._principal(claims)
        except (self._jwt.PyJWTError, TypeError) as error:  # TypeError: a key of another type
            return Identity(None, f"is no valid JWT for this gateway: {error}")
        except ValueError as error:
            return Identity(None, str(error))
        if len(self._valid) >= _MOST_REMEMBERED:
            del self._valid[next(iter(self._valid))]
        self._valid[digest] = (principal, float(claims["exp"]) + self._settings.clock_skew_s)
        return Identity(principal)

    def _claims(self, token: str, now_s: float) -> dict[str, Any]:
        settings = self._settings
        header = self._jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in settings.algorithms:
            raise ValueError(f"is a JWT signed by {str(algorithm)[:20]!r}: see jwt.algorithms")
        key = self._keys.get(str(header.get("kid")))
        if key is None:
            if self._on_unknown_key is not None:
                self._on_unknown_key()
            raise ValueError("is a JWT of an unknown key: the keys are being read again, retry")
        public, own_algorithm = key
        if own_algorithm not in (None, algorithm):
            raise ValueError(f"is a JWT signed by {algorithm}, but its key is for {own_algorithm}")
        claims: dict[str, Any] = self._jwt.decode(
            token,
            key=public.key,
            algorithms=[algorithm],
            audience=settings.audience,
            issuer=settings.issuer,
            options={
                "require": ["exp", "iss", "aud"],
                # Checked below, by the clock of this process.
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
        self._check_times(claims, now_s)
        return claims

    def _check_times(self, claims: dict[str, Any], now_s: float) -> None:
        skew_s = self._settings.clock_skew_s
        times = {name: claims.get(name) for name in ("exp", "nbf", "iat")}
        for name, value in times.items():
            if value is not None and not _is_time(value):
                raise ValueError(f"has a claim {name} that is no time")
        if now_s >= claims["exp"] + skew_s:
            raise ValueError("is an expired JWT: get a new one from the provider")
        for name in ("nbf", "iat"):
            since_s = times[name]
            if since_s is not None and now_s < since_s - skew_s:
                raise ValueError(f"is a JWT of the future ({name}): check the clocks")

    def _principal(self, claims: dict[str, Any]) -> str:
        settings = self._settings
        for each in settings.principals:
            value = claims.get(each.claim)
            if each.value in (value if isinstance(value, list) else [value]):
                return each.principal
        if settings.principals:
            raise ValueError("is a JWT that no entry of jwt.principals matches")
        name = claims.get(settings.principal_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME_CHARS:
            raise ValueError(f"is a JWT without the claim {settings.principal_claim!r}")
        return f"{settings.principal_prefix}{name}"


def _is_time(value: Any) -> bool:
    """Return whether *value* is a number of seconds; NaN, which Python reads, would never end."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_LATEST_S <= value <= _LATEST_S
