"""The HTTP address of several workers leads to any of them: what concerns one is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from proxy.admin.operations import Call, Handler, Operation
from proxy.errors import OwnedElsewhere

#: A counter of now one process and now another is worse than none; and whoever drains one has to be
#: able to tell it to go on. The console would show now this one and now that one.
_OF_ONE = {
    "/metrics",
    "/api/process",
    "/api/events",
    "/api/overview",
    "/api/groups/{group}/series",
    "/api/clients",
    "/api/owners/drain",
    "/api/owners/resume",
}


def of_any_worker(operations: Iterable[Operation], workers: Sequence[str]) -> list[Operation]:
    """*operations*, where those that concern one process name *workers*: where each is asked."""
    return [
        replace(each, handle=_elsewhere(each.path, tuple(workers)))
        if each.path in _OF_ONE
        else each
        for each in operations
    ]


def _elsewhere(path: str, workers: tuple[str, ...]) -> Handler:
    async def refuse(_call: Call) -> None:
        raise OwnedElsewhere(
            f"{path} is of one worker, and this address leads to any: ask {' or '.join(workers)}",
            addresses=workers,
        )

    return refuse
