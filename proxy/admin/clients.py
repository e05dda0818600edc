"""Clients connected to a proxy, and their leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import Call, Operation, get
from proxy.downstream.port.connection import Connection
from proxy.lane.group_lane import GroupLane
from proxy.operator.request_models import Answer, RequestModel

MOST_SHOWN = 10_000


class ClientsQuery(RequestModel):
    """Selects clients."""

    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_SHOWN:,}", ge=1, le=MOST_SHOWN)
    ] = 500
    group: Annotated[
        str | None, Field(description="a group whose messages they pull", min_length=1)
    ] = None


class ClientGroupView(Answer):
    """A group pulled by a connection: its client name and number of leases."""

    group: str
    client: str
    leases: int


class ClientView(Answer):
    """A connection.

    ``waits``: a pull is waiting for messages; ``certificate``: common name of the client's
    certificate.
    """

    connection: int
    address: str
    certificate: str | None
    waits: bool
    leases: int
    groups: list[ClientGroupView]


class ClientsView(Answer):
    """``connected``: number of matching connections."""

    connected: int
    clients: list[ClientView]


class ClientSurface:
    """``GET /api/clients``."""

    def __init__(self, connections: Mapping[int, Connection], lanes: Iterable[GroupLane]) -> None:
        self._connections = connections
        self._lanes = lanes

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                "/api/clients",
                "List the clients connected to this proxy, those with most leases first.",
                self._show,
                query=ClientsQuery,
                answer=ClientsView,
            )
        ]

    async def _show(self, call: Call) -> dict[str, Any]:
        asked: ClientsQuery = call.query
        leases: Counter[tuple[int, str]] = Counter(
            (lease.holder.connection, lane.name)
            for lane in self._lanes
            for pipeline in lane.buffer
            for lease in pipeline.leases
        )
        rows = [
            _row(each, leases)
            for each in self._connections.values()
            if asked.group is None or asked.group in each.pulled
        ]
        rows.sort(key=lambda row: (-row["leases"], row["connection"]))
        return {"connected": len(rows), "clients": rows[: asked.limit]}


def _row(connection: Connection, leases: Counter[tuple[int, str]]) -> dict[str, Any]:
    number = connection.connection_id
    groups = [
        {"group": group, "client": client, "leases": leases[number, group]}
        for group, client in connection.pulled.items()
    ]
    return {
        "connection": number,
        "address": connection.address,
        "certificate": connection.certificate_name,
        "waits": connection.give_up is not None,
        "leases": sum(each["leases"] for each in groups),
        "groups": groups,
    }
