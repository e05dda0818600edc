"""Operations at the HTTP address shared by workers, which refuses those of a single worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from proxy.admin.operations import Call, Handler, Operation
from proxy.errors import OwnedElsewhere

#: Operations on one process: requests to the shared address would reach a different worker each
#: time, so counters would jump, a drained worker could not be resumed, nor a redrive be stopped.
_OF_ONE = {
    "/metrics",
    "/api/process",
    "/api/events",
    "/api/overview",
    "/api/diagnoses",
    "/api/groups/{group}/diagnosis",
    "/api/groups/{group}/series",
    "/api/groups/{group}/handling",
    "/api/groups/{group}/leases",
    "/api/groups/{group}/dead-letters/stop",
    "/api/clients",
    "/api/principals",
    "/api/refusals",
    "/api/owners/drain",
    "/api/owners/resume",
}


def of_any_worker(operations: Iterable[Operation], workers: Sequence[str]) -> list[Operation]:
    """Return *operations* with those on one process refused by an error that names *workers*."""
    return [
        replace(each, handle=_elsewhere(each.path, tuple(workers)))
        if each.path in _OF_ONE
        else each
        for each in operations
    ]


def _elsewhere(path: str, workers: tuple[str, ...]) -> Handler:
    async def refuse(_call: Call) -> None:
        raise OwnedElsewhere(
            f"{path} needs a single worker, but this address is shared: use {' or '.join(workers)}",
            addresses=workers,
        )

    return refuse
