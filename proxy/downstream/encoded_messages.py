"""Checks messages that clients encoded themselves (``sendEncoded``), as ``outgoing.py`` checks
others. Pure.

They reach the broker as they are, so nothing may be in them that another send could not have: see
``check_encoded``. Messages in the usual form are matched as a whole; only others are decoded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.message import KEYS, TAGS, UNIQ_KEY, is_reserved, property_of
from broker_core.remoting.message_batch import BETWEEN, HEAD, entry_bounds
from proxy.downstream.outgoing import MAX_KEY_CHARS, MAX_TAG_CHARS, IllegalMessage

#: The largest number of messages in a request, so that checking them takes milliseconds.
MAX_MESSAGES = 10_000
#: The largest number of properties in its messages that are not in the usual form: each is decoded.
MAX_DECODED = 100_000

#: Properties in ASCII: the application's, all with names that begin with a lower-case letter, as no
#: reserved name does; then UNIQ_KEY, and the key and the tag if there are any. Group 1 are those of
#: the application but the first: names may occur twice only if there are some.
_USUAL = re.compile(
    rb"(?:[a-z][\x03-\x7f]*+\x01[\x03-\x7f]++\x02)?+"
    rb"((?:[a-z][\x03-\x7f]*+\x01[\x03-\x7f]++\x02)++)?+"
    rb"UNIQ_KEY\x01[\x03-\x7f]++\x02"
    rb"(?:KEYS\x01[\x03-\x7f]{1,%d}+\x02)?+"
    rb"(?:TAGS\x01[\x03-\x7f]{1,%d}+\x02)?+" % (MAX_KEY_CHARS, MAX_TAG_CHARS)
)
_NAME = re.compile(rb"([^\x01\x02]++)\x01[^\x02]*+\x02")
#: Between the sizes of a message and of its body: magic number, checksum and flags, all of them 0.
_ZEROS = bytes(12)
#: Where they begin and end, before the body.
_BEGIN, _END = HEAD.size - 4, 4
_LIMITS = {KEYS: ("key", MAX_KEY_CHARS), TAGS: ("tag", MAX_TAG_CHARS)}
_OWN_FIELDS = frozenset({UNIQ_KEY, KEYS, TAGS})


class Checked(NamedTuple):
    """Where each message ends, and the size of its body."""

    ends: list[int]
    body_bytes: list[int]


def check_encoded(data: bytes, *, count: int, max_body_bytes: int) -> Checked:
    """Return the extent of the *count* messages in *data*.

    Raises IllegalMessage if these are not whole messages, each with a body, a UNIQ_KEY, and
    properties that a message of ``sendSync`` may have.
    """
    if not 0 < count <= MAX_MESSAGES:
        raise IllegalMessage(f"a batch of {count} messages: expected 1 to {MAX_MESSAGES}")
    ends: list[int] = []
    bodies: list[int] = []
    usual, decoded, begins = _USUAL.fullmatch, 0, data.startswith
    try:
        for _, body_at, properties_at, end in entry_bounds(data):
            body_bytes = properties_at - BETWEEN.size - body_at
            if not begins(_ZEROS, body_at - _BEGIN) or not 0 < body_bytes <= max_body_bytes:
                zeros = data[body_at - _BEGIN : body_at - _END]
                raise _illegal_content(zeros, body_bytes, max_body_bytes)
            found = usual(data, properties_at, end)
            if found is None or (found.lastindex and _has_twice(data, properties_at, end)):
                decoded += data.count(b"\x02", properties_at, end)
                if decoded > MAX_DECODED:
                    raise IllegalMessage(
                        f"more than {MAX_DECODED} properties up to this message: send fewer"
                        " messages in a request"
                    )
                _check_properties(data[properties_at:end])
            ends.append(end)
            bodies.append(body_bytes)
            if len(ends) > count:
                break
    except (IllegalMessage, RemoteProtocolError) as error:
        raise IllegalMessage(f"message {len(ends) + 1} of {count}: {error}") from None
    if len(ends) != count:
        number = f"more than {count}" if len(ends) > count else str(len(ends))
        raise IllegalMessage(f"the body holds {number} messages: expected {count}, the count")
    return Checked(ends, bodies)


def ids_of(data: bytes) -> list[str]:
    """Return the UNIQ_KEY of each message of *data*, which was checked."""
    return [property_of(data[at:end], UNIQ_KEY) or "" for _, _, at, end in entry_bounds(data)]


def _has_twice(data: bytes, begin: int, end: int) -> bool:
    """Return whether a name occurs twice among the properties, which are in the usual form."""
    names = _NAME.findall(data, begin, end)
    return len(set(names)) < len(names)


def _illegal_content(zeros: bytes, body_bytes: int, max_body_bytes: int) -> IllegalMessage:
    if zeros != _ZEROS:
        return IllegalMessage(
            f"{zeros.hex(' ', 4)} as magic number, checksum and flags: expected 0 for each"
        )
    return IllegalMessage(f"a body of {body_bytes} bytes: expected 1 to {max_body_bytes}")


def _check_properties(raw: bytes) -> None:
    """Raise IllegalMessage for properties that cannot be sent."""
    try:
        *pairs, rest = raw.decode().split("\x02")
    except UnicodeDecodeError as error:
        raise IllegalMessage(f"properties that are not UTF-8: {error}") from None
    if rest:
        raise IllegalMessage(f"properties that end with {rest[:80]!r}: expected 0x02 at the end")
    names: set[str] = set()
    for pair in pairs:
        name, _, value = pair.partition("\x01")
        if "\x01" in value:
            raise IllegalMessage(f"property {name!r} must not contain the character 0x01")
        if name not in _OWN_FIELDS and is_reserved(name):
            raise IllegalMessage(f"property {name!r} is reserved by the broker: rename it")
        if not name or not value:
            raise IllegalMessage(f"property {name!r} with value {value!r}: neither may be empty")
        if name in names:
            raise IllegalMessage(f"property {name!r} occurs twice: send it once")
        what, most = _LIMITS.get(name, ("", len(value)))
        if len(value) > most:
            raise IllegalMessage(f"a {what} of {len(value)} characters: the limit is {most}")
        names.add(name)
    if UNIQ_KEY not in names:
        raise IllegalMessage(f"no property {UNIQ_KEY}: expected the message's id")
