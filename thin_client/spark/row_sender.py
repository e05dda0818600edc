"""Sends the rows of a task: encoded, if the proxy supports that, else as messages."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from thin_client.spark.destinations import NumberedQueues, Routes, check_destination
from thin_client.spark.encoded_producer import EncodedProducer, Support
from thin_client.spark.encoding import Rows
from thin_client.spark.options import WriteOptions
from thin_client.spark.outgoing import COLUMNS, PARTITION, Origin
from thin_client.spark.sending import Lanes
from thin_client.spark.server_order import KnownFailures


class RowSender:
    """Connections of one task. Tasks begin at different proxies. Use it as a context: its end waits
    until all rows are stored.
    """

    def __init__(
        self,
        options: WriteOptions,
        origin: Origin,
        *,
        patience_s: float,
        failures: KnownFailures | None = None,
    ) -> None:
        """*patience_s*: the time for which a request is repeated; *failures*: as of
        ``ProxyCalls``.
        """
        known = KnownFailures() if failures is None else failures
        servers = options.connecting.servers
        servers = known.order(servers, time.monotonic(), turn=origin.partition)
        connecting = replace(options.connecting, servers=servers)
        check = partial(check_destination, connecting, failures=known)
        self._origin = origin
        self._most = options.batch_size
        self._lanes_number = options.concurrent_requests
        self._support = support = Support()
        self._names = (*COLUMNS, PARTITION) if options.kafka_names else tuple(COLUMNS)
        self._numbered = NumberedQueues(check)
        self._routes = Routes(check)
        self._encodes = True
        self._lanes = Lanes(
            options.concurrent_requests,
            lambda: EncodedProducer(connecting, support, patience_s=patience_s, failures=known),
        )

    def __enter__(self) -> Self:
        self._lanes.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lanes.__exit__(kind, error, trace)

    def send(self, batch: Any, *, first: int) -> None:
        """Send the rows of an Arrow batch, after those of earlier calls; *first*: the number of its
        first row. Raises RowRefused, or the error of earlier rows.
        """
        columns = {name: batch.column(name) for name in batch.schema.names if name in self._names}
        qids = None
        if PARTITION in columns:
            named = {name: columns[name].to_pylist() for name in columns if name != "value"}
            qids = self._origin.qids(named, self._numbered.qid, first=first)
            del columns[PARTITION]
        rows = Rows(self._origin, columns, first, qids)
        if self._encodes:
            encoded = rows.encoded()
            self._encodes = self._takes_encoded(set(encoded.topics))
            if self._encodes:
                most, lanes = self._most, self._lanes_number
                parts = encoded.parts(self._routes.queues, most=most, lanes=lanes)
                self._lanes.send_encoded(parts)
                return
            self._lanes.wait()  # a key is in another lane from now on
        self._lanes.send(rows.messages())

    def _takes_encoded(self, topics: set[str]) -> bool:
        """Return whether the proxy takes encoded messages and names the queues of *topics*, which
        are read again when it is time.
        """
        if self._support.is_missing:
            return False
        if self._support.take_missing_queue() or self._routes.are_old(time.monotonic()):
            self._lanes.wait()  # a key may be in another queue from now on, and in another lane
            self._routes.forget()
        return all(self._routes.queues(topic) for topic in topics)
