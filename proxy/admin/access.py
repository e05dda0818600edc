"""Principals with their quotas and usage, tokens that expire, and refused requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import structlog
from pydantic import Field

from proxy.admin.operations import Call, Operation, get
from proxy.admin.signing_keys import SigningKeys
from proxy.core.limits.quotas import LIMITS, Quotas
from proxy.core.limits.refusals import MOST_KEPT, RefusalBook
from proxy.net.principals import Principals
from proxy.operator.request_models import Answer, RequestModel

#: Seconds before the end of a token from which a start is logged with a warning.
_SOON_S = 14 * 86_400

_log = structlog.get_logger("access")


class QuotaView(Answer):
    """Limits of a principal; null: unlimited."""

    requests_per_s: float | None
    bytes_per_s: float | None
    loop_share: float | None
    connections: int | None
    topics: int | None
    groups: int | None


class PrincipalView(Answer):
    """A principal that has called since this proxy started.

    ``requests``, ``bytes``, ``loop_s`` and ``refused`` are totals; principals that no setting names
    share one total. ``topics`` and ``groups`` are counted only where a quota limits them.
    """

    principal: str
    quota: QuotaView
    requests: int
    bytes: int
    loop_s: float
    connections: int
    topics: int
    groups: int
    refused: dict[str, int]


class PrincipalsView(Answer):
    """``expires_in_s``: by the name of each token with an end; negative after it."""

    principals: list[PrincipalView]
    expires_in_s: dict[str, float]


class RefusalsQuery(RequestModel):
    """Parameters of the list of refusals."""

    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_KEPT:,}", ge=1, le=MOST_KEPT)
    ] = 100


class RefusalView(Answer):
    """A refused request; ``left_out``: refusals of the source since its previous entry."""

    client: str
    principal: str
    port: str
    what: str
    why: str
    at_ms: int
    left_out: int


class RefusalsView(Answer):
    """``count``: all refusals since this proxy started, also those left out."""

    count: int
    refusals: list[RefusalView]


class AccessSurface:
    """``GET /api/principals`` and ``GET /api/refusals``."""

    def __init__(self, quotas: Quotas, principals: Principals, refusals: RefusalBook) -> None:
        self._quotas = quotas
        self._principals = principals
        self._refusals = refusals

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                "/api/principals",
                "List the principals that have called this proxy, with quotas and usage.",
                self._show,
                answer=PrincipalsView,
            ),
            get(
                "/api/refusals",
                "List refused requests to this proxy, the newest last.",
                self._refused,
                query=RefusalsQuery,
                answer=RefusalsView,
            ),
        ]

    async def _show(self, _call: Call) -> dict[str, Any]:
        rows = [
            {
                "principal": name,
                "quota": asdict(account.quota),
                "requests": account.usage.requests,
                "bytes": account.usage.bytes,
                "loop_s": account.usage.loop_ns / 1e9,
                "connections": account.connections,
                "topics": account.names("topics"),
                "groups": account.names("groups"),
                "refused": account.usage.refused,
            }
            for name, account in sorted(self._quotas.accounts())
        ]
        return {"principals": rows, "expires_in_s": self._principals.expiries_s()}

    async def _refused(self, call: Call) -> dict[str, Any]:
        records = list(self._refusals)
        return {
            "count": self._refusals.count,
            "refusals": [asdict(each) for each in records[-call.query.limit :]],
        }


def access_figures(
    quotas: Quotas,
    principals: Principals,
    keys: SigningKeys | None,
    revocations_end_in_s: Callable[[], dict[str, float]] = dict,
) -> Iterator[tuple[str, list[str], float]]:
    """Yield field, label values and value of each metric of principals, tokens and keys."""
    for label, usage in quotas.usages().items():
        yield "principal_requests", [label], usage.requests
        yield "principal_bytes", [label], usage.bytes
        yield "principal_loop", [label], usage.loop_ns / 1e9
        yield "principal_connections", [label], usage.connections
        for limit in LIMITS:
            yield "principal_refused", [label, limit], usage.refused[limit]
    for name, left_s in principals.expiries_s().items():
        yield "token_expires", [name], left_s
    for setting, left_s in revocations_end_in_s().items():
        yield "revocations_end", [setting], left_s
    if keys is not None:
        yield "signing_key_failures", [], keys.failures
        age_s = keys.age_s()
        if age_s is not None:
            yield "signing_keys_age", [], age_s


def warn_of_expiries(principals: Principals) -> None:
    """Log the tokens that have expired or soon will."""
    for name, left_s in principals.expiries_s().items():
        if left_s <= 0:
            _log.error("token has expired: replace it", token=name)
        elif left_s < _SOON_S:
            _log.warning(
                "token expires soon: replace it", token=name, days=round(left_s / 86_400, 1)
            )
