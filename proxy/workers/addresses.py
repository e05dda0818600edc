"""The addresses of each worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.errors import SettingsError
from proxy.settings.types import at_port, host_port

#: Distance between the ports of two workers. Thrift and HTTP are adjacent by default, and the port
#: should show the worker.
STEP = 10


@dataclass(frozen=True, slots=True)
class WorkerAddresses:
    """Number and addresses of a worker, as host:port; port 0 is any free port."""

    number: int  # from 1
    thrift: str
    http: str


def worker_addresses(workers: int, *, shared: dict[str, str]) -> list[WorkerAddresses]:
    """Return the addresses of all workers: worker k has the ports of ``listen.thrift`` and
    ``listen.http`` plus 10k, or free ones where these are 0.

    *shared*: shared addresses by setting. Raises SettingsError for a duplicate address.
    """
    made = [
        WorkerAddresses(
            number,
            _offset_address(shared, "listen.thrift", number),
            _offset_address(shared, "listen.http", number),
        )
        for number in range(1, workers + 1)
    ]
    taken: dict[int, str] = {}
    for port, whose in _ports(made, shared):
        if port and port in taken:
            raise SettingsError(
                f"{taken[port]} and {whose} would both have port {port}: workers have the ports of"
                f" listen.thrift and listen.http plus {STEP}, {2 * STEP}, ...; choose others"
            )
        taken[port] = whose
    return made


def _offset_address(shared: dict[str, str], setting: str, number: int) -> str:
    address = shared[setting]
    port = host_port(address)[1]
    if not port:
        return address
    if port + number * STEP > 65535:
        raise SettingsError(
            f"{setting}: {address} leaves no port for worker {number}: choose a lower port"
        )
    return at_port(address, port + number * STEP)


def _ports(made: list[WorkerAddresses], shared: dict[str, str]) -> Iterator[tuple[int, str]]:
    for setting, address in shared.items():
        yield host_port(address)[1], setting
    for worker in made:
        yield host_port(worker.thrift)[1], f"worker {worker.number} for Thrift"
        yield host_port(worker.http)[1], f"worker {worker.number} for HTTP"
