"""Extension of leases from the Keeper's thread while the event loop is blocked. Pure.

This code may run in another thread than the session's: it copies shared state and writes only
deadlines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from thin_client.arrivals import name_in
from thin_client.lease import Lease, LeaseName, name_of
from thin_client.session_options import SessionOptions
from thin_client.verdicts import Verdicts
from thrift_idl import consumer


@dataclass(frozen=True, slots=True)
class LeaseExtension:
    """An extend request and its leases."""

    request: consumer.ExtendRequest
    leases: Sequence[Lease]
    unsent: Sequence[Verdicts]
    length_ns: int

    def extended(self, asked_ns: int, gone: Collection[LeaseName]) -> list[Lease]:
        """Record the answer to the request of *asked_ns*; return the leases that are *gone*.

        Waiting messages among these are no longer passed to handlers.
        """
        until_ns = asked_ns + self.length_ns
        lost = []
        for lease in self.leases:
            if name_of(lease) in gone:
                lease.hold_until(min(lease.deadline_ns, asked_ns))
                lost.append(lease)
            else:
                lease.hold_until(max(lease.deadline_ns, until_ns))
        for verdicts in self.unsent:
            verdicts.keep_until(until_ns)
        return lost


def to_extend(
    held: Sequence[Lease],
    unsent: Sequence[Verdicts],
    options: SessionOptions,
    *,
    longest_ns: int,
    gone: Collection[LeaseName],
) -> LeaseExtension | None:
    """Return the request to extend the leases of *held* messages and *unsent* verdicts, or None.

    *longest_ns*: the lease length if no message is held.
    """
    leases = [each for each in held if not each.lease_lost and name_of(each) not in gone]
    references = [
        consumer.LeaseRef(context=lease.origin.context, leaseId=lease.lease_id) for lease in leases
    ]
    references += [
        reference
        for verdicts in unsent
        for reference in verdicts.references()
        if name_in(reference) not in gone
    ]
    if not references:
        return None
    # The shortest length: the proxy would cap a longer one without reporting it.
    length_ns = min((lease.origin.length_ns for lease in leases), default=longest_ns)
    request = consumer.ExtendRequest(
        groupId=options.group,
        leases=references,
        ms=length_ns // 1_000_000,
        clientId=options.client_id,
        token=options.token,
    )
    return LeaseExtension(request, leases, unsent, length_ns)
