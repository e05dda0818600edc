"""What a group's messages say of the order keys that it could have."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import LOOKS, Operation, get
from proxy.operator.asked import Answer, Asked
from proxy.operator.order_key_desk import OrderKeyDesk
from proxy.tuning.service_times import LEAST_MS, MOST_MS, ServiceTimes


class OrderKeyQuery(Asked):
    """Of which messages, and for how many handlers."""

    topic: Annotated[
        str | None, Field(description="a topic of the group; without it, its first one")
    ] = None
    sample: Annotated[
        int,
        Field(ge=1, le=10_000, description="how many messages: the newest of each queue"),
    ] = 2_000
    workers: Annotated[
        int,
        Field(ge=1, le=1_000_000, description="handlers at a time"),
    ] = 64
    service_ms: Annotated[
        float | None,
        Field(
            ge=LEAST_MS,
            le=MOST_MS,
            allow_inf_nan=False,
            description="what half of the messages take at most; without it nothing is simulated",
        ),
    ] = None
    service_p99_ms: Annotated[
        float | None,
        Field(
            ge=LEAST_MS,
            le=MOST_MS,
            allow_inf_nan=False,
            description="what 99 % of them take at most; below the other all take the same",
        ),
    ] = None

    @property
    def service(self) -> ServiceTimes | None:
        """What handlers take for a message; None: it was not said."""
        if self.service_ms is None:
            return None
        return ServiceTimes(self.service_ms, max(self.service_ms, self.service_p99_ms or 0.0))


class OrderKeyView(Answer):
    """The tuning report, as ``orderlane order-key lint -o json`` prints it; shares are from 0 to 1.
    ``order_key`` is the one that the settings name, ``simulation`` what ``orderlane order-key
    simulate -o json`` prints of the same messages.
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


class OrderKeySurface:
    """``GET /api/groups/{group}/order-key``."""

    def __init__(self, desk: OrderKeyDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """What it serves."""
        return [
            get(
                "/api/groups/{group}/order-key",
                "What the newest messages of a topic say of each order key that it could have, and"
                " how long they would take with it.",
                lambda call: self._desk.lint(
                    call.path["group"],
                    call.query.topic,
                    sample=call.query.sample,
                    workers=call.query.workers,
                    service=call.query.service,
                ),
                query=OrderKeyQuery,
                answer=OrderKeyView,
                errors=LOOKS,
            )
        ]
