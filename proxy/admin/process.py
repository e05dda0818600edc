"""Clocks and memory of a proxy's process in the admin API."""

from __future__ import annotations

from typing import Any

from broker_core.clock import now_ns, wall_ms
from proxy.admin.operations import Call, Operation, get
from proxy.core.ownership.clock_jumps import JumpKind
from proxy.operator.request_models import Answer
from proxy.upstream.context import UpstreamContext


class ClockJumpView(Answer):
    """A stall (``stood_still``) or a change of the wall clock (``wall_clock``) of ``by_s`` s."""

    kind: JumpKind
    by_s: float
    ago_s: float


class ProcessView(Answer):
    """A proxy's process.

    ``http`` and ``thrift``: addresses of its ports, the latter for clients; ``wall_ms``: its wall
    clock, in milliseconds since 1970; ``memory_bytes``: message bodies of all groups;
    ``clock_jumps``: the latest ones, oldest first; ``away``: why an operator drained it, otherwise
    empty.
    """

    proxy: str
    http: str
    thrift: str
    away: str
    wall_ms: int
    memory_bytes: int
    memory_limit_bytes: int
    clock_jumps: list[ClockJumpView]


class ProcessSurface:
    """``GET /api/process``."""

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                "/api/process",
                "Show the clocks and memory of this proxy's process.",
                self._process,
                answer=ProcessView,
            )
        ]

    async def _process(self, _call: Call) -> dict[str, Any]:
        return process_view(self._context)


def process_view(context: UpstreamContext) -> dict[str, Any]:
    """Return the clocks and memory of this process."""
    now = now_ns()
    return {
        "proxy": context.client.client_id,
        "http": context.http,
        "thrift": context.thrift,
        "away": context.away,
        "wall_ms": wall_ms(),
        "memory_bytes": context.memory.used,
        "memory_limit_bytes": context.memory.limit,
        "clock_jumps": [
            {"kind": jump.kind, "by_s": jump.by_ms / 1000, "ago_s": (now - jump.at_ns) / 1e9}
            for jump in context.clock_jumps.seen
        ],
    }
