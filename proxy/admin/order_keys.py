"""Comparison of candidate order keys in the admin API."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from proxy.admin.operations import LOOKS, Operation, get
from proxy.core.keys.kinds.registry import compile_order_key, one_of
from proxy.operator.order_key_desk import OrderKeyDesk
from proxy.operator.request_models import Answer, RequestModel
from proxy.tuning.service_times import LEAST_MS, MOST_MS, ServiceTimes


def _valid(text: str) -> str:
    compile_order_key(text)
    return text


class OrderKeyQuery(RequestModel):
    """Sample and parameters of a comparison."""

    topic: Annotated[
        str | None,
        Field(description="a topic of the group (default: the first one)", min_length=1),
    ] = None
    candidate: Annotated[
        str | None,
        Field(
            description=f"{one_of()}: the only candidate (default: all that are found)",
            max_length=1000,
        ),
        AfterValidator(lambda text: None if text is None else _valid(text)),
    ] = None
    sample: Annotated[
        int,
        Field(
            ge=1, le=10_000, description="the number of newest messages to sample, from 1 to 10,000"
        ),
    ] = 2_000
    workers: Annotated[
        int,
        Field(
            ge=1, le=1_000_000, description="the number of concurrent handlers, from 1 to 1,000,000"
        ),
    ] = 64
    service_ms: Annotated[
        float | None,
        Field(
            ge=LEAST_MS,
            le=MOST_MS,
            allow_inf_nan=False,
            description="the median (p50) handling time in ms (default: no simulation)",
        ),
    ] = None
    service_p99_ms: Annotated[
        float | None,
        Field(
            ge=LEAST_MS,
            le=MOST_MS,
            allow_inf_nan=False,
            description="the p99 handling time in ms (default: all equal to service_ms)",
        ),
    ] = None

    observed: Annotated[
        bool,
        Field(
            description="true or false: simulate with the handling times that the group's clients"
            " at this proxy reported, instead of service_ms"
        ),
    ] = False

    @property
    def service(self) -> ServiceTimes | None:
        """Handling times; None without service_ms."""
        if self.service_ms is None:
            return None
        return ServiceTimes(self.service_ms, max(self.service_ms, self.service_p99_ms or 0.0))


class OrderKeyView(Answer):
    """The tuning report, as printed by ``orderlane order-key lint -o json``; shares are fractions.

    ``order_key`` is the current one; ``simulation`` is the output of ``orderlane order-key simulate
    -o json`` for the same messages.
    """

    group: str
    topic: str
    order_key: str | None
    source: str
    messages: int
    workers: int
    missing_key: str
    windows: dict[str, int]
    candidates: list[dict[str, Any]]
    advice: dict[str, Any]
    simulation: dict[str, Any] | None


class HandlingView(Answer):
    """Measurements of the group's clients at this proxy in the last minutes: numbers of clients, of
    their handlers and of messages that may wait at them; handling times of ``messages``, and round
    trips of ``requests``, both also as counts by the first microsecond of each class.
    """

    group: str
    clients: int
    handlers: int
    prefetch: int
    messages: int
    mean_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    requests: int
    round_trip_ms: float | None
    handling_us: dict[str, int]
    round_trips_us: dict[str, int]


class OrderKeySurface:
    """``GET /api/groups/{group}/order-key`` and ``…/handling``."""

    def __init__(self, desk: OrderKeyDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                "/api/groups/{group}/order-key",
                "Compare candidate order keys by the newest messages of a topic, optionally with a"
                " simulation.",
                lambda call: self._desk.lint(
                    call.path["group"],
                    call.query.topic,
                    candidate=call.query.candidate,
                    sample=call.query.sample,
                    workers=call.query.workers,
                    service=call.query.service,
                    observed=call.query.observed,
                ),
                query=OrderKeyQuery,
                answer=OrderKeyView,
                errors=(*LOOKS, 409),
            ),
            get(
                "/api/groups/{group}/handling",
                "Return how long the group's clients at this proxy take for messages and requests.",
                lambda call: self._desk.handling(call.path["group"]),
                answer=HandlingView,
                errors=LOOKS,
            ),
        ]
