"""Encoding of ownership records. Pure.

A record is one JSON object with ``v`` (1) and ``kind``:

- ``own``: owner, trust_ms, longest_lease_ms, broker_start_ms (since when the broker had forgotten
  no lock), period (number of the ownership
  period), http (address of the owner's HTTP port), by_name (only if an operator assigned the queue
  to that owner), hold_ms (how long leases of earlier periods may live from then on, if any), life
  (the incarnation of the topic, if the broker reports it), start (where the period begins if no
  other record defines the finished messages), origin_life and period_life (in the records of a
  parked twin: the incarnations of its queue's topic, and of the topic with its queue's records);
- ``snapshot``: epoch, part (from 0), of (number of parts), serial (rises with each snapshot of a
  period: one with a lower serial came late and is ignored), base, read (the read position),
      unfinished, attempts (pairs of offset and count), leases (pairs of offset and milliseconds:
      those that outlive a hand-over), spilled (pairs of order key in base64 and offsets), parked
      (pairs of order key and [first, epoch, redriven, rate]: see ``ParkedKey``), parked_by (order
      key, actor, reason), longest_lease_ms (longest lease in this period, if longer than in its
      ``own``), paused (pairs of order key, null for the whole queue, and [since_ms, actor,
      reason]), notes (order key, and operators' notes on it as a paused and as a parked key), keys
      (the order key: see ``KeyRecord``), anchor (offset and place in the broker's log of the last
      message that was read, if the broker has no lives), moved_from (after a reset to a lower
      offset: committed offsets up to here may be from before it), own (the fields of the period's
      ``own`` record, in the first part: retention may have deleted that record). The parts of a
      snapshot are consecutive; their lists add up;
- ``delta``: epoch, snapshot (offset of the first record of the snapshot that it and the deltas
  before it build on), after (offset of the previous delta, or of that snapshot), base, read, left
  (offsets that were unfinished, and are finished or spilled now), unfinished (added ones), attempts
  (changed ones), spilled (added offsets), heads (pairs of order key and the first remaining offset
  of its spilled chain, null if none is left), parked (changed ones, null if no longer parked),
  parked_by (of those), longest_lease_ms (as in a snapshot), paused (changed ones, null if no longer
  paused), notes (of those), keys (if changed), anchor (as in a snapshot), hold_over (true once the
  leases of earlier periods have ended, so that ``hold_ms`` of the ``own`` no longer counts);
- ``clean``: epoch, to (the member to which operators assigned the queue, if any). The owner ended
  with no leases except those in its snapshot, which is complete.

Unfinished offsets are written as differences, the first to ``base``. There is one spilled offset
for each message of a stuck key, so they are packed: ``width:base64``, with differences (the first
to 0) of *width* bytes each, little endian.

Proxies of different versions take queues over from each other. Fields added later (``http``,
``after``, ``parked_by``, ``longest_lease_ms``, ``paused``, ``keys``, ``by_name``, ``to``, ``own``,
``serial``, ``hold_ms``, ``life``, ``start``, ``anchor``, ``notes``, ``hold_over``, ``moved_from``,
``origin_life``, ``period_life``) may be missing, and readers ignore unknown fields.
"""

from __future__ import annotations

import operator
import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import accumulate, chain, pairwise
from typing import Any

import orjson

from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.keys.order_key import named
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Anchor, Clean, Delta, Own, Record, Snapshot, SnapshotPart

VERSION = 1
_TYPES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # array type codes by width


def encode(record: Record) -> bytes:
    """Return the record as the body of a message."""
    match record:
        case Own():
            fields: dict[str, Any] = {"kind": "own", **_own_to_json(record)}
        case SnapshotPart():
            piece = record.piece
            fields = {
                "kind": "snapshot",
                "epoch": piece.epoch,
                "part": record.number,
                "of": record.of,
                "base": piece.base,
                "read": piece.read,
                "unfinished": _steps(piece.base, piece.unfinished),
                "attempts": sorted(piece.attempts.items()),
                "leases": sorted(piece.leases.items()),
                "spilled": _packed_by_key(piece.spilled),
                **_of_keys(piece),
                **_of_period(record),
            }
        case Delta():
            fields = {
                "kind": "delta",
                "epoch": record.epoch,
                "snapshot": record.snapshot,
                "after": record.after,
                "base": record.base,
                "read": record.read,
                "left": _steps(0, record.left),
                "unfinished": _steps(record.base, record.unfinished),
                "attempts": sorted(record.attempts.items()),
                "spilled": _packed_by_key(record.spilled),
                "heads": [[_text(key), head] for key, head in record.heads.items()],
                **_of_keys(record),
                **({"hold_over": True} if record.hold_over else {}),
            }
        case Clean():
            fields = {"kind": "clean", "epoch": record.epoch}
            if record.to:
                fields["to"] = record.to
    return orjson.dumps({"v": VERSION, **fields})


def decode(body: bytes) -> Record:
    """Undo ``encode``. Raise ValueError, in one sentence, if *body* is not an ownership record."""
    try:
        fields = orjson.loads(body)
        version, kind = fields["v"], fields["kind"]
        if version != VERSION:
            raise ValueError(f"its version is {version}, not {VERSION}")
        if kind == "own":
            return _own(fields)
        if kind == "snapshot":
            return _snapshot_part(fields)
        if kind == "delta":
            return _delta(fields)
        if kind == "clean":
            return Clean(Epoch(_number(fields["epoch"])), to=str(fields.get("to", "")))
        raise ValueError(f"its kind is {kind}, not own, snapshot, delta or clean")
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not an ownership record: {error!r}") from error
    except ValueError as error:
        raise ValueError(f"not an ownership record: {error}") from error


def _of_period(part: SnapshotPart) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if part.own is not None:
        fields["own"] = _own_to_json(part.own)
    if part.serial:
        fields["serial"] = part.serial
    if part.piece.moved_from is not None:
        fields["moved_from"] = part.piece.moved_from
    return fields


def _own_to_json(own: Own) -> dict[str, Any]:
    fields = asdict(own)
    for name in ("by_name", "hold_ms"):
        if not fields[name]:
            del fields[name]
    for name in ("life", "start", "origin_life", "period_life"):
        if fields[name] is None:
            del fields[name]
    return fields


def _own(fields: dict[str, Any]) -> Own:
    return Own(
        owner=str(fields["owner"]),
        trust_ms=_number(fields["trust_ms"]),
        longest_lease_ms=_number(fields["longest_lease_ms"]),
        broker_start_ms=_number(fields["broker_start_ms"]),
        period=_number(fields["period"]),
        http=str(fields.get("http", "")),
        by_name=fields.get("by_name") is True,
        hold_ms=_number(fields.get("hold_ms", 0)),
        life=_maybe_number(fields.get("life")),
        start=_maybe_number(fields.get("start")),
        origin_life=_maybe_number(fields.get("origin_life")),
        period_life=_maybe_number(fields.get("period_life")),
    )


def _snapshot_part(fields: dict[str, Any]) -> SnapshotPart:
    base = _number(fields["base"])
    piece = Snapshot(
        Epoch(_number(fields["epoch"])),
        base,
        _number(fields["read"]),
        _offsets(base, fields["unfinished"]),
        _counts(fields["attempts"]),
        _unpacked_by_key(fields["spilled"]),
        _counts(fields["leases"]),
        {key: each for key, each in _parked_of(fields).items() if each is not None},
        _number(fields.get("longest_lease_ms", 0)),
        {key: each for key, each in _paused_of(fields).items() if each is not None},
        keys=_keys_of(fields),
        anchor=_anchor_of(fields),
        moved_from=_maybe_number(fields.get("moved_from")),
    )
    number, of = _number(fields["part"]), _number(fields["of"])
    if not 0 <= number < of:
        raise ValueError(f"it is part {number} of {of}")
    own = fields.get("own")
    serial = _number(fields.get("serial", 0))
    return SnapshotPart(number, of, piece, None if own is None else _own(own), serial)


def _delta(fields: dict[str, Any]) -> Delta:
    base = _number(fields["base"])
    return Delta(
        Epoch(_number(fields["epoch"])),
        _number(fields["snapshot"]),
        base,
        _number(fields["read"]),
        left=_offsets(0, fields["left"]),
        unfinished=_offsets(base, fields["unfinished"]),
        attempts=_counts(fields["attempts"]),
        spilled=_unpacked_by_key(fields["spilled"]),
        heads={_key(key): None if head is None else _number(head) for key, head in fields["heads"]},
        parked=_parked_of(fields),
        after=None if (after := fields.get("after")) is None else _number(after),
        longest_lease_ms=_number(fields.get("longest_lease_ms", 0)),
        paused=_paused_of(fields),
        keys=_keys_of(fields),
        anchor=_anchor_of(fields),
        hold_over=fields.get("hold_over") is True,
    )


def _parked_to_json(parked: Mapping[bytes, ParkedKey | None]) -> list[list[Any]]:
    return [[_text(key), None if each is None else each.to_json()] for key, each in parked.items()]


def _of_keys(record: Snapshot | Delta) -> dict[str, Any]:
    """Return the trailing fields that snapshots and deltas share."""
    return {
        "parked": _parked_to_json(record.parked),
        "parked_by": _parked_by(record.parked),
        **_longest_lease(record.longest_lease_ms),
        **_paused_to_json(record.paused),
        **_notes_to_json(record),
        **_keys_to_json(record.keys),
        **({} if record.anchor is None else {"anchor": list(record.anchor)}),
    }


def _longest_lease(ms: int) -> dict[str, int]:
    return {"longest_lease_ms": ms} if ms else {}


def _parked_by(parked: Mapping[bytes, ParkedKey | None]) -> list[list[str]]:
    return [
        [_text(key), each.by, each.reason]
        for key, each in parked.items()
        if each is not None and (each.by or each.reason)
    ]


def _parked_of(fields: dict[str, Any]) -> dict[bytes, ParkedKey | None]:
    if not fields.get("parked"):
        return {}
    parked = {
        _key(key): None if each is None else ParkedKey.from_json(each)
        for key, each in fields["parked"]
    }
    for key, by, reason in fields.get("parked_by", ()):
        if (each := parked.get(_key(key))) is not None:
            parked[_key(key)] = replace(each, by=str(by), reason=str(reason))
    for text, _, note in fields.get("notes", ()):
        key = _maybe_key(text)
        if key is not None and (each := parked.get(key)) is not None:
            parked[key] = replace(each, note=str(note))
    return parked


def _paused_to_json(paused: Mapping[bytes | None, PausedKey | None]) -> dict[str, Any]:
    """Return the field with *paused* keys; empty without any."""
    pairs = [
        [None if key is None else _text(key), None if each is None else each.to_json()]
        for key, each in paused.items()
    ]
    return {"paused": pairs} if pairs else {}


def _paused_of(fields: dict[str, Any]) -> dict[bytes | None, PausedKey | None]:
    paused = {
        _maybe_key(key): None if each is None else PausedKey.from_json(each)
        for key, each in fields.get("paused", ())
    }
    for key, note, _ in fields.get("notes", ()):
        if (each := paused.get(_maybe_key(key))) is not None:
            paused[_maybe_key(key)] = replace(each, note=str(note))
    return paused


def _notes_to_json(record: Snapshot | Delta) -> dict[str, Any]:
    """Return the field with operators' notes; empty without any."""
    keys: dict[bytes | None, None] = dict.fromkeys((*record.paused, *record.parked))
    notes = [
        [None if key is None else _text(key), *both]
        for key in keys
        if any(both := (_note_of(record.paused.get(key)), _note_of(_parked_at(record, key))))
    ]
    return {"notes": notes} if notes else {}


def _parked_at(record: Snapshot | Delta, key: bytes | None) -> ParkedKey | None:
    return None if key is None else record.parked.get(key)


def _note_of(kept: PausedKey | ParkedKey | None) -> str:
    return "" if kept is None else kept.note


def _keys_to_json(keys: KeyRecord | None) -> dict[str, Any]:
    return {} if keys is None else {"keys": keys.to_json()}


def _keys_of(fields: dict[str, Any]) -> KeyRecord | None:
    keys = fields.get("keys")
    return None if keys is None else KeyRecord.from_json(keys)


def _anchor_of(fields: dict[str, Any]) -> Anchor | None:
    if (anchor := fields.get("anchor")) is None:
        return None
    offset, log_offset = anchor
    return Anchor(_number(offset), _number(log_offset))


def _steps(first: int, offsets: Iterable[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise((first, *offsets))]


def _offsets(first: int, steps: Sequence[Any]) -> tuple[int, ...]:
    if steps == []:
        return ()  # as in most records
    return tuple(map(_number, accumulate(map(int, steps), initial=first)))[1:]


def _counts(pairs: Iterable[tuple[Any, Any]]) -> dict[int, int]:
    return {_number(offset): _number(count) for offset, count in pairs}


def _text(key: bytes) -> str:
    return b64encode(key).decode()


def _key(text: str) -> bytes:
    """Return the key by its current name: earlier proxies wrote keys of any length in full."""
    return named(_bytes(text))


def _maybe_key(text: str | None) -> bytes | None:
    return None if text is None else _key(text)


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


def _packed_by_key(spilled: Mapping[bytes, array[int]]) -> list[list[str]]:
    return [[_text(key), _pack(offsets)] for key, offsets in spilled.items()]


def _unpacked_by_key(pairs: Iterable[tuple[str, str]]) -> dict[bytes, array[int]]:
    return {_key(key): _unpack(text) for key, text in pairs}


def _number(value: Any) -> int:
    """Return *value* as a number. Raise ValueError if it is out of range."""
    number = value if type(value) is int else int(value)
    if not 0 <= number < 2**63:
        raise ValueError(f"{number} is not in the range 0 to 2^63 - 1")
    return number


def _maybe_number(value: Any) -> int | None:
    return None if value is None else _number(value)


def _pack(offsets: array[int]) -> str:
    """Pack rising *offsets*, none negative."""
    steps = array("Q", map(operator.sub, offsets, chain((0,), offsets)))
    longest = max(steps, default=0)
    width = next(width for width in _TYPES if longest >> 8 * width == 0)
    return f"{width}:{_text(_little_endian(array(_TYPES[width], steps)).tobytes())}"


def _unpack(text: str) -> array[int]:
    width, _, packed = text.partition(":")
    if int(width) not in _TYPES:
        raise ValueError(f"offsets are packed in {width!r} bytes, not 1, 2, 4 or 8")
    steps = array(_TYPES[int(width)], _bytes(packed))
    return array("q", accumulate(_little_endian(steps)))


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
