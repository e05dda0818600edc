"""Every parser of bytes from outside, as a function that a fuzzer can call.

A target returns for any input. It accepts the errors that the parser documents, and raises for any
other error, and if a parsed value differs after it is written and read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from broker_core.broker.sql.parser import compile_filter
from broker_core.broker.sql.tokens import BadFilter
from broker_core.errors import InvalidCommand, LocalProtocolError, RemoteProtocolError
from broker_core.names import Group, Topic
from broker_core.remoting import (
    admin_bodies,
    bodies,
    compressed_registration,
    group_bodies,
    route_bodies,
)
from broker_core.remoting.command import MAX_HEADER_FIELDS, RemotingCommand
from broker_core.remoting.connection import RemotingConnection, Role
from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import StoredMessage, decode_messages, decode_properties
from broker_core.remoting.message_batch import decode_batch
from broker_core.remoting.read_sessions import changes_from_bytes, parts_from_bytes
from broker_core.remoting.recall_handle import RecallHandle
from broker_core.remoting.replication_headers import (
    names_from_json,
    probes_from_json,
    queue_starts_from_json,
    tables_from_json,
)
from broker_core.remoting.together import (
    commits_from_bytes,
    outcomes_from_bytes,
    refusals_from_bytes,
    sends_from_bytes,
)
from proxy.admin import (
    audit,
    dead_letters,
    groups,
    handoffs,
    key_views,
    leases,
    offsets,
    owners,
)
from proxy.admin.checking import Malformed, body_of, query_of
from proxy.core.access import audit_record
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.records import codec as ownership_codec
from proxy.core.records.record import Snapshot, SnapshotPart
from proxy.downstream.encoded_messages import check_encoded, ids_of
from proxy.downstream.outgoing import IllegalMessage, outgoing_message
from proxy.downstream.port.credentials import TokenReader
from proxy.downstream.port.elements.budget import (
    MAX_STRUCTS,
    MAX_VALUES,
    Budget,
    TooManyElements,
)
from proxy.downstream.port.frames import Call, FrameBuffer, FrameError
from proxy.errors import SettingsError
from proxy.operator.key_models import KeyBody
from proxy.operator.request_models import ChangeBody, RequestModel
from proxy.settings.proxy_settings import load_settings
from testkit.thrift_client import structs
from tests.support.bad_requests import AT_BROKER, AT_NAMESERVER

MAX_FRAME_BYTES = 1 << 20
#: Longest processor time of one input, in s; inputs are small.
_MOST_S = 0.5
METHODS = (
    "pull", "submit", "settle", "extend", "fetch", "ack", "ranges", "topics", "report",
    "getConsumeStats", "sendSync", "sendAsync", "sendBatchSync", "sendEncoded", "sendDelaySync",
    "prepareTransaction", "endTransaction", "transactionChecks", "writableQueues",
)  # fmt: skip
#: Of a batch, without its body and properties.
_ENTRY_BYTES = 22
_CODES = {**AT_BROKER, **AT_NAMESERVER}
BODIES: tuple[Callable[[bytes], object], ...] = (
    bodies.Heartbeat.from_json,
    bodies.LockBatch.from_json,
    bodies.locked_from_json,
    admin_bodies.subscribed_from_json,
    bodies.connected_ids_from_json,
    bodies.consumer_ids_from_json,
    bodies.table_from_json,
    lambda data: bodies.committed_queues_from_json(data, Group("g"), Topic("t")),
    bodies.consumers_from_json,
    route_bodies.TopicRoute.from_json,
    route_bodies.ClusterTable.from_json,
    route_bodies.BrokerRegistration.from_json,
    route_bodies.DataVersion.from_json,
    route_bodies.topic_list_from_json,
    group_bodies.group_list_from_json,
    group_bodies.GroupConfig.from_json,
    compressed_registration.registration_from_compressed,
    probes_from_json,
    queue_starts_from_json,
    tables_from_json,
    names_from_json,
    changes_from_bytes,
    parts_from_bytes,
    sends_from_bytes,
    commits_from_bytes,
    lambda data: outcomes_from_bytes(data, 3),
    lambda data: refusals_from_bytes(data, 3),
)
ASKED: tuple[type[RequestModel], ...] = (
    audit.AuditQuery,
    dead_letters.DeadLettersQuery,
    dead_letters.DeadLetterQuery,
    dead_letters.ExportQuery,
    dead_letters.RedriveBody,
    dead_letters.StopBody,
    groups.GroupBody,
    groups.DeleteQuery,
    handoffs.HandoffBody,
    key_views.KeyQuery,
    key_views.KeyHistoryQuery,
    key_views.KeysQuery,
    KeyBody,
    leases.LeasesQuery,
    leases.ExtendBody,
    offsets.OffsetsQuery,
    offsets.ResetBody,
    owners.OwnersQuery,
    ChangeBody,
)


def remoting_frames(data: bytes) -> None:
    """Parse bytes on a remoting port, in two pieces: commands, their headers and JSON bodies."""
    if not data:
        return
    connection = RemotingConnection(Role.SERVER, max_frame_bytes=MAX_FRAME_BYTES)
    cut = data[0] % len(data)
    for piece in (data[1 : 1 + cut], data[1 + cut :]):
        connection.receive_data(piece)
        try:
            while (command := connection.next_command()) is not None:
                assert len(command.ext) <= MAX_HEADER_FIELDS
                good = _CODES.get(command.code)
                if good is not None and good.header is not None:
                    try:
                        header = good.header.from_ext(command.ext)
                    except InvalidCommand:
                        continue
                    assert good.header.from_ext(header.to_ext()) == header
                _encoded_again(command)
        except RemoteProtocolError:
            return


def _encoded_again(command: RemotingCommand) -> None:
    try:
        frame = command.encode()
    except LocalProtocolError:
        return
    reader = RemotingConnection(Role.SERVER)
    reader.receive_data(frame)
    again = reader.next_command()
    assert again is not None
    assert (again.code, again.ext, bytes(again.body)) == (
        command.code,
        command.ext,
        bytes(command.body),
    )


def remoting_bodies(data: bytes) -> None:
    """Parse bodies of requests and answers; the first byte selects the kind."""
    if not data:
        return
    try:
        BODIES[data[0] % len(BODIES)](data[1:])
    except (InvalidCommand, RemoteProtocolError):
        return


def stored_messages(data: bytes) -> None:
    """Parse records of a pull answer, and everything that is read of them later."""
    try:
        messages = decode_messages(data, most_inflated_bytes=1 << 20)
    except RemoteProtocolError:
        return
    assert sum(message.size for message in messages) <= len(data)
    for message in messages:
        _look_at(message)


def _look_at(message: StoredMessage) -> None:
    for name in (
        "queue_id", "flag", "physical_offset", "sys_flag", "born_host", "store_ms", "store_host",
        "reconsume_times", "prepared_offset", "properties", "key", "tag", "message_id",
        "why_compressed",
    ):  # fmt: skip
        getattr(message, name)
    key = message.key
    assert message.key_bytes == (plain_key(key or "").encode() or None)


def batch_bodies(data: bytes) -> None:
    """Parse the body of a batch send."""
    try:
        entries = decode_batch(data)
    except RemoteProtocolError:
        return
    lengths = [_ENTRY_BYTES + len(each.body) + len(each.properties) for each in entries]
    assert sum(lengths) == len(data)


def encoded_messages(data: bytes) -> None:
    """Check messages that a client encoded: their number, then the messages."""
    count, batch = sum(data[:1]), data[1:]
    try:
        found = check_encoded(batch, count=count, max_body_bytes=MAX_FRAME_BYTES)
    except IllegalMessage:
        return
    entries = decode_batch(batch)
    assert count == len(entries) == len(found.ends) == len(ids_of(batch))
    assert found.body_bytes == [len(each.body) for each in entries]
    for each in entries:
        assert each.flag == 0
        properties = decode_properties(each.properties)
        outgoing_message(  # sendSync would take it, too
            Topic("t"),
            each.body,
            key=properties.pop("KEYS", None),
            tag=properties.pop("TAGS", None),
            properties=properties,
            max_body_bytes=MAX_FRAME_BYTES,
        )


def thrift_frames(data: bytes) -> None:
    """Parse bytes on the Thrift port: frames, heads of calls, arguments in both protocols."""
    buffer = FrameBuffer(MAX_FRAME_BYTES)
    buffer.receive_data(data)
    try:
        while (frame := buffer.next_frame()) is not None:
            call = Call(frame)
            if call.name in METHODS:
                _decode_within_budget(call)
    except (FrameError, TooManyElements):
        return


def _decode_within_budget(call: Call) -> None:
    """Check that counting is bounded by the frame, reads the same tokens, and takes no time."""
    began_s = time.thread_time()
    budget = Budget()
    call.count(budget)
    spent = MAX_STRUCTS - budget.structs + MAX_VALUES - budget.values
    assert spent <= 3 * call.frame_bytes, f"{spent} elements in {call.frame_bytes} bytes"
    arguments = call.decode(structs(call.name)[0]())
    request = getattr(arguments, arguments.__slots__[0])
    if request is not None and not isinstance(request, list):
        tokens = TokenReader(structs(call.name)[0]).tokens(call)
        assert tokens == {getattr(request, "token", None)}
    assert time.thread_time() - began_s < _MOST_S, "decoding took too long"


def ownership_records(data: bytes) -> None:
    """Parse ownership records."""
    try:
        record = ownership_codec.decode(data)
    except ValueError:
        return
    if isinstance(record, SnapshotPart | Snapshot):
        return  # parts may be inconsistent until they are joined
    assert ownership_codec.decode(ownership_codec.encode(record)) == record


def audit_records(data: bytes) -> None:
    """Parse records of the audit topic."""
    try:
        record = audit_record.decode(data)
    except ValueError:
        return
    assert audit_record.decode(audit_record.encode(record)) == record


def settings_files(data: bytes) -> None:
    """Parse the settings file."""
    try:
        load_settings(Path("settings.yaml"), environment={}, content=data)
    except SettingsError as error:
        _check_sentence(error, 100_000)


def _check_sentence(error: Exception, longest: int) -> None:
    """Check that an error for the sender is a bounded text."""
    assert 0 < len(str(error)) < longest


def json_paths(data: bytes) -> None:
    """Parse an order key, and after a NUL the body of a message."""
    text, _, body = data.partition(b"\0")
    try:
        rule = compile_order_key(text.decode(errors="replace"))
    except ValueError:
        return
    message = _message(body)
    key = rule.of(message)
    assert rule.look(message)[0] == key


def _message(body: bytes) -> StoredMessage:
    return StoredMessage(
        topic=Topic("t"),
        queue_offset=0,
        born_ms=0,
        size=0,
        body=body,
        body_is_compressed=False,
        head=b"",
        raw_properties=b"",
    )


def admin_requests(data: bytes) -> None:
    """Parse HTTP requests: the first byte selects the operation, the rest is body and query."""
    if not data:
        return
    model = ASKED[data[0] % len(ASKED)]
    try:
        body_of(data[1:], model)
    except Malformed as error:
        _check_sentence(error, 10_000)
    pairs = [pair.partition("=") for pair in data[1:].decode("latin-1").split("&")]
    try:
        query_of([(name, value) for name, _, value in pairs], model)
    except Malformed as error:
        _check_sentence(error, 10_000)


def sql_filters(data: bytes) -> None:
    """Parse a consumer's filter, and after a NUL the properties to apply it to."""
    text, _, rest = data.partition(b"\0")
    try:
        passes = compile_filter(text.decode(errors="replace"))
    except BadFilter:
        return
    values = rest.decode(errors="replace").split("\0")
    passes(dict(zip(("a", "b", "c"), values, strict=False)))


def recall_handles(data: bytes) -> None:
    """Parse a producer's handle to recall a message."""
    try:
        handle = RecallHandle.from_text(data.decode("latin-1"))
    except InvalidCommand:
        return
    assert RecallHandle.from_text(handle.to_text()) == handle
