"""Queries for messages by key (12) and by position in the log (33)."""

from __future__ import annotations

from broker_core.broker.key_lookup import KeyLookup
from broker_core.errors import NO_MESSAGE, BrokerError, InvalidCommand
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import StoredMessage
from broker_core.remoting.query_headers import (
    QueryMessageHeader,
    QueryMessageResponse,
    ViewMessageHeader,
)
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.indexer import IndexBehind, KeyIndexer
from broker_core.store.reader import StoreReader

MAX_MESSAGES = 64
_OF_UNIQUE_KEY = 32
_MAX_BYTES = 8 * 1024 * 1024  # besides the first message; a frame has up to 16 MiB
_WAIT_S = 5.0


class QueryProcessor:
    """Answers with stored messages, unchanged from the log."""

    def __init__(self, reader: StoreReader, *, lookup: KeyLookup) -> None:
        self._reader = reader
        self._index = lookup.index

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self._by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self._by_place,
        }

    async def _by_key(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = QueryMessageHeader.from_ext(request.ext)
        if header.max_num < 1:
            raise InvalidCommand(f"maxNum is {header.max_num}: expected at least 1")
        if self._index is None:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                "this broker keeps no index of keys (its setting key_index is false)",
            )
        found, complete = await self._found(self._index, header)
        if not found:
            raise BrokerError(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message of topic {header.topic!r} has the key {header.key[:200]!r} and was"
                f" stored from {header.begin_timestamp} to {header.end_timestamp}",
            )
        fields = QueryMessageResponse(
            index_last_update_timestamp=found[-1].store_ms,
            index_last_update_phyoffset=self._index.position,
            complete=complete,
        )
        records = [self._reader.record(each.physical_offset, each.size) for each in found]
        return request.response(ext=fields.to_ext(), body=b"".join(records))

    async def _found(
        self, index: KeyIndexer, header: QueryMessageHeader
    ) -> tuple[list[StoredMessage], bool]:
        """Return the newest messages, oldest first, and whether the search came to its end."""
        most = _OF_UNIQUE_KEY if header.unique_key else min(header.max_num, MAX_MESSAGES)
        found: list[StoredMessage] = []
        size, complete = 0, True
        search = index.find(
            Topic(header.topic),
            header.key,
            begin_ms=header.begin_timestamp,
            end_ms=header.end_timestamp,
            timeout_s=_WAIT_S,
        )
        try:
            async for message in search:
                size += message.size
                if found and size > _MAX_BYTES:
                    complete = False
                    break
                found.append(message)
                if len(found) == most:
                    complete = False
                    break
        except IndexBehind as error:
            raise BrokerError(ResponseCode.SYSTEM_BUSY, str(error)) from error
        found.reverse()
        return found, complete

    def _by_place(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        place = ViewMessageHeader.from_ext(request.ext).offset
        message = self._reader.message_at(place)
        if message is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"{NO_MESSAGE}{place} of the log")
        return request.response(body=self._reader.record(place, message.size))
