"""Conversion of a pull's answer to leases. Pure."""

from __future__ import annotations

from typing import Any, cast

from thin_client.errors import ProtocolError
from thin_client.lease import Home, Lease, LeaseName, Origin
from thrift_idl import consumer, consumer_service

_MS = 1_000_000
#: A message's fields on the wire, and the attributes that they set.
_NAMES = {
    "key": "wire_key",
    "value": "body",
    "tag": "wire_tag",
    "offset": "offset",
    "properties": "wire_properties",
    "leaseId": "lease_id",
    "attempt": "wire_attempt",
    "bornAtMs": "wire_born_at_ms",
    "orderKey": "wire_order_key",
    "messageId": "wire_message_id",
}


def read_leases(
    part: consumer.PullResponse, home: Home, *, sent_ns: int, length_ms: int
) -> list[Lease]:
    """Return the leases of one queue's batch. Raises ProtocolError for missing fields."""
    if not part.messages:
        return []
    context = part.context or consumer.Context()
    topic, queue, length_ms = context.topic or "", context.qid or "", part.leaseMs or length_ms
    if not (topic and queue and length_ms > 0):
        raise ProtocolError(f"{_name_of(home)} sent messages without topic, qid or leaseMs")
    origin = Origin((topic, queue), context, home, length_ms * _MS)
    leases = cast(list[Lease], part.messages)
    if not isinstance(leases[0], Lease):
        leases = [_from_wire(each) for each in part.messages]
    deadline_ns = sent_ns + length_ms * _MS
    try:
        Lease.complete(leases, origin, deadline_ns)
    except AttributeError as error:
        text = f"{_name_of(home)} sent a message of {topic}/{queue} without body, offset or lease"
        raise ProtocolError(text) from error
    return leases


def _name_of(home: Home) -> str:
    return home.address or "a proxy that does not tell its address"


def name_in(reference: consumer.LeaseRef) -> LeaseName:
    """Return the name of the lease in *reference*."""
    context = reference.context or consumer.Context()
    return (context.topic or "", context.qid or "", reference.leaseId or 0)


class PullResult(consumer_service.pull_result):
    """The answer to a pull, whose messages the C codec decodes directly into leases.

    The Python codec decodes them into the generated structs.
    """

    thrift_spec: Any = None  # set below


def _from_wire(message: consumer.Message) -> Lease:
    lease: Lease = Lease()
    for name, own in _NAMES.items():
        value = getattr(message, name)
        if value is not None:
            setattr(lease, own, value)
    return lease


def _generated(struct: Any) -> tuple[Any, ...]:
    """Return the description of a generated struct for the C codec."""
    specification: tuple[Any, ...] = struct.thrift_spec
    return specification


def _specification() -> tuple[Any, ...]:
    """Return the description of ``pull_result``, with leases instead of messages."""
    message = tuple(
        field and (*field[:2], _NAMES[field[2]], *field[3:])
        for field in _generated(consumer.Message)
    )
    generated = list(_generated(consumer.PullResponse))
    response: list[Any] = [consumer.PullResponse, None]
    for field in filter(None, _generated(consumer.PullResponse)):
        number, kind, name, _, default = field
        if name == "messages":
            element: list[Any] = [Lease, message]
        elif name == "more":
            element = response
        else:
            continue
        struct = field[3][0]
        generated[number] = (number, kind, name, (struct, element, False), default)
    response[1] = tuple(generated)
    success, error = _generated(consumer_service.pull_result)
    return ((*success[:3], response, *success[4:]), error)


PullResult.thrift_spec = _specification()
