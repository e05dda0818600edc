"""I/O of the asyncio producer in one event loop: performs what a ``SendPipeline`` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from thin_client import chance
from thin_client.aio_connection import AsyncConnection
from thin_client.clock import now_ns
from thin_client.delivery import Answer, Delivery, joint_call
from thin_client.encoded_requests import EncodedRequests
from thin_client.errors import ClientError
from thin_client.send_pipeline import Send, SendPipeline
from thin_client.send_room import SendRoom
from thin_client.servers import Destination, Servers

#: Maximum number of connections, each with one request under way. One is enough for an application
#: that awaits each send; others are opened when they are needed.
MOST_CONNECTIONS = 4


class AsyncSender:
    """Sends requests over up to ``MOST_CONNECTIONS`` connections.

    Sends of one iteration of the event loop go out together.
    """

    def __init__(
        self, servers: Servers, *, max_in_flight: int, paused: Callable[[Delivery], None]
    ) -> None:
        """*paused* is called with each request that will be sent again."""
        self.loop = asyncio.get_running_loop()
        self._servers = servers
        self._paused = paused
        self._pipeline = SendPipeline()
        self._encoded = EncodedRequests()
        self._room = SendRoom(max_in_flight)
        self._entering = 0  # calls that wait for room
        self._free: list[tuple[AsyncConnection, Destination]] = []
        self._requests: set[asyncio.Task[None]] = set()  # under way
        self._turning = False  # a turn is due in this iteration of the loop
        self._closing = False
        self._halted = False  # a request was cancelled: perhaps the loop ends
        self._finished: list[asyncio.Future[None]] = []  # of those that wait for the end

    @property
    def idle(self) -> bool:
        """True if all sends have ended."""
        return self._pipeline.idle and not self._entering

    async def begin(
        self, requests: list[Delivery], ended: Callable[[Exception | None], None]
    ) -> Send:
        """Wait for room, and queue the *requests* of a call; *ended* is called as by the pipeline.

        Calls keep their order.
        """
        self._closing = self._halted = False
        pipeline, room = self._pipeline, self._room
        messages = sum(len(request.messages) for request in requests)
        size = sum(request.size for request in requests)
        number = pipeline.enter()
        self._entering += 1
        try:
            await room.enter(messages, size)
        except BaseException:
            self._entering -= 1
            pipeline.leave(number, requests)
            self._check_end()
            raise

        def leave(error: Exception | None) -> None:
            room.leave(messages, size)
            ended(error)

        self._entering -= 1
        send = pipeline.add(number, requests, leave)
        self._turn_soon()
        return send

    def cancel(self, send: Send) -> None:
        """End a send whose caller no longer waits; a request under way is not repeated."""
        self._pipeline.cancel(send)
        self._turn_soon()

    def close(self) -> None:
        """Close the connections as soon as all sends have ended; at once if the loop is closed."""
        if self.loop.is_closed():
            self.release()
        else:
            self._closing, self._halted = True, False
            self._check_end()
            if not self.idle:
                self._turn_soon()

    def release(self) -> None:
        """Release the sockets of a closed loop."""
        while self._free:
            self._free.pop()[0].forked()

    async def finished(self) -> None:
        """Wait until all sends have ended."""
        if not self.idle:
            waiter = self.loop.create_future()
            self._finished.append(waiter)
            await waiter

    # ---- requests -------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Start the requests that may go, as long as there are connections for them."""
        self._turning = False
        while len(self._requests) < MOST_CONNECTIONS and not self._halted:
            sends = self._pipeline.take(now_ns())
            if not sends:
                break
            task = self.loop.create_task(self._request(sends), name="orderlane sends")
            self._requests.add(task)
            task.add_done_callback(self._end_request)
        self._check_end()

    def _end_request(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._turn()

    def _check_end(self) -> None:
        if not self.idle:
            return
        if self._closing:
            while self._free:
                self._free.pop()[0].close()
        while self._finished:
            waiter = self._finished.pop()
            if not waiter.done():
                waiter.set_result(None)

    async def _request(self, sends: Sequence[Send]) -> None:
        try:
            pauses = await self._ask(sends)
        except asyncio.CancelledError:  # if the loop ends, no task may be started any more
            self._halted = True
            self._pipeline.abandon(sends)
            raise
        except Exception as error:  # a bug
            self._pipeline.abandon(sends, error)
            raise
        for send, pause_s in pauses:
            self.loop.call_later(pause_s, self._resume, send)

    async def _ask(self, sends: Sequence[Send]) -> list[tuple[Send, float]]:
        connection, destination = self._take_free() or (None, self._servers.destination)
        if not sends[0].shares:  # it is alone
            connection, destination = await self._divide(sends[0], connection, destination)
        requests = [send.request for send in sends]
        was_encoded = requests[0].entries is not None
        call, timeout_s = joint_call(requests, now_ns())
        for request in requests:
            request.ask(destination.address)
        sent = False
        try:
            if connection is None:
                connection = await AsyncConnection.open(destination, timeout_s=timeout_s)
            sent = True
            answer: Answer = await connection.call(call, timeout_s=timeout_s)
        except ClientError as error:
            if connection is not None:
                connection.close()
            if was_encoded:
                self._encoded.failed(error)
            if destination == self._servers.destination:  # no other request has moved on
                self._servers.go_on()
            pauses = self._pipeline.lost(
                sends, error, sent=sent, now_ns=now_ns(), jitter=chance.fraction
            )
        else:
            self._free.append((connection, destination))
            pauses = self._pipeline.answered(sends, answer, now_ns=now_ns(), jitter=chance.fraction)
            if was_encoded and requests[0].entries is None:
                self._encoded.refused(requests[0])
        for send, request in zip(sends, requests, strict=True):
            if send.tried:
                self._paused(request)
        return pauses

    async def _divide(
        self, send: Send, connection: AsyncConnection | None, destination: Destination
    ) -> tuple[AsyncConnection | None, Destination]:
        """Divide the request of *send* as ``EncodedRequests`` decides; return the connection, if it
        is open, and the proxy that gets the request.
        """
        encoded, request = self._encoded, send.request
        for topic in encoded.topics_to_ask(request, now_ns()):
            call, timeout_s = encoded.question(topic, request, now_ns())
            try:
                if connection is None:
                    connection = await AsyncConnection.open(destination, timeout_s=timeout_s)
                answer = await connection.call(call, timeout_s=timeout_s)
            except ClientError as error:
                encoded.not_told(topic, error, now_ns())
                if connection is not None:
                    connection.close()
                if destination == self._servers.destination:
                    self._servers.go_on()
                connection, destination = None, self._servers.destination
                break
            encoded.told(topic, answer, now_ns())
        self._pipeline.divide(send, encoded.divided(request))
        return connection, destination

    def _take_free(self) -> tuple[AsyncConnection, Destination] | None:
        while self._free:
            connection, destination = self._free.pop()
            if not connection.closed:
                return connection, destination
        return None

    def _resume(self, send: Send) -> None:
        self._pipeline.resume(send)
        self._turn()
