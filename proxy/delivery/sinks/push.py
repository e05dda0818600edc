"""Delivers messages as HTTP requests; the core decides requests and the meaning of answers.

One time limit covers an attempt from connecting to the last byte of the answer. At its end the
connection closes, which discards a late answer. If connecting fails, nothing was sent: the next URL
is tried, and the target is down once none is left. Cookies, redirects and environment proxies are
disabled, and connections are made only to addresses that the settings allow (``resolver``).
"""

from __future__ import annotations

import asyncio
import io
import os
import ssl
from collections.abc import Sequence
from importlib.metadata import version

import aiohttp
from yarl import URL

from broker_core.clock import now_ns, wall_ms
from broker_core.rare_warnings import RareWarnings
from broker_core.tracebacks import forget_frames
from proxy.core.delivery.push_answer import Answer, AnswerRules, Judgement, judge
from proxy.core.delivery.push_pace import PushPace
from proxy.core.delivery.push_request import (
    PushRequest,
    PushRules,
    Unsendable,
    places_of,
    request_of,
)
from proxy.core.delivery.push_url import PushUrl
from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.core.delivery.receiver_address import ReceiverAddresses
from proxy.core.delivery.target_pause import TargetPause
from proxy.delivery.deliverer import ACKED, Delivery, TargetDown, Verdict, failed
from proxy.delivery.resolver import AddressRefused, CheckedResolver
from proxy.delivery.trust import trust_of
from proxy.settings.sinks.push import (
    PushSettings,
    answer_rules_of,
    push_rules_of,
    receivers_of,
)

#: Idle connections are closed before servers close them, often after 5 s: a request sent at that
#: moment would fail without any fault of the receiver.
_KEEPALIVE_S = 4.0
#: Fraction of the time limit after which an attempt stops itself, just before its caller does, so
#: that the reason can name the receiver.
_OF_TIMEOUT = 0.98
#: Larger bodies are written in chunks, so that the event loop stays responsive.
_LARGE_BYTES = 1 << 20


def make(settings: PushSettings, access: ReceiverAccess) -> HttpPush:
    """Return the deliverer of one topic. Raises ValueError for an unsuitable secret or file."""
    return HttpPush(
        push_rules_of(settings, access),
        answer_rules_of(settings),
        addresses=receivers_of(settings, access),
        timeout_s=settings.timeout_s,
        concurrency=settings.concurrency,
        max_rate=settings.max_rate,
        tls=trust_of(settings),
    )


class HttpPush:
    """The receivers of one topic of one group. ``max_rate`` is requests a second."""

    def __init__(
        self,
        rules: PushRules,
        answers: AnswerRules,
        *,
        addresses: ReceiverAddresses,
        timeout_s: float,
        concurrency: int,
        max_rate: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """*addresses*: those that receivers may have. *tls* None: the system's authorities for
        receivers' certificates.
        """
        self.pace = PushPace(max_rate)
        self._rules = rules
        self._answers = answers
        self._addresses = addresses
        self._warnings = RareWarnings("push")
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._tls = tls
        self._pauses = {url.origin: TargetPause() for url in rules.urls}
        self._session: aiohttp.ClientSession | None = None

    async def deliver(self, delivery: Delivery) -> Verdict:
        """Send one request to the next URL in turn that accepts a connection.

        Raises TargetDown if none of the URLs in the settings does.
        """
        asked: list[PushUrl] = []
        try:
            places, own = places_of(self._rules, delivery)
            async with asyncio.timeout(self._timeout_s * _OF_TIMEOUT):
                judgement = await self._push(delivery, places, asked, own=own)
        except Unsendable as error:
            return failed(str(error), reject=True)
        except TimeoutError:
            return failed(f"{asked[-1].origin}: no complete answer within {self._timeout_s:g} s")
        except _Unreachable as error:
            if own:  # the message's own URL may be invalid; other messages can still be delivered
                return failed(str(error), reject=error.refused)
            raise TargetDown(str(error)) from None
        if not own:
            self._heed(judgement)
        if judgement.failure is None:
            return ACKED
        return failed(
            judgement.failure, retry_after_ms=judgement.retry_after_ms, reject=judgement.reject
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # ---- internals ------------------------------------------------------------------------------

    async def _push(
        self, delivery: Delivery, places: Sequence[PushUrl], asked: list[PushUrl], *, own: bool
    ) -> Judgement:
        """Return the first answer from *places*; recently failed ones are tried last. Add each to
        *asked* before it is tried.
        """
        began_ns = now_ns()
        pauses = {} if own else self._pauses

        def is_down(place: PushUrl) -> bool:
            pause = pauses.get(place.origin)
            return pause is not None and not pause.places(1, under_way=0, now_ns=began_ns)

        reasons: dict[str, _Unreachable] = {}  # by origin
        for place in sorted(places, key=is_down):
            if place.origin in reasons:
                continue
            asked.append(place)
            request = request_of(self._rules, delivery, place, at_s=wall_ms() // 1000)
            try:
                answer = await self._ask(request, place, of=len(places))
            except _Unreachable as error:
                reasons[place.origin] = error.with_traceback(None)
                if (pause := pauses.get(place.origin)) is not None:
                    pause.found_down(str(error), began_ns=began_ns, now_ns=now_ns())
                continue
            if (pause := pauses.get(place.origin)) is not None:
                pause.answered(began_ns=began_ns)
            if isinstance(answer, str):
                return Judgement(f"{place.origin}: {answer}")
            return judge(answer, self._answers, wall_ms=wall_ms()).at(place.origin)
        raise _Unreachable(
            "; ".join(map(str, reasons.values())),
            refused=all(each.refused for each in reasons.values()),
        )

    async def _ask(self, request: PushRequest, place: PushUrl, *, of: int) -> Answer | str:
        """Return the answer of *place*, or the failure of the request after connecting.

        Connecting, which includes the resolution of the name and all its addresses, gets only a
        part of the time limit. With several places this leaves time for the others.
        """
        # The connector resolves names only, not addresses.
        if (problem := self._addresses.literal_problem(place.host)) is not None:
            raise self._refused(place, problem)
        try:
            async with self._open().request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=_payload(request.body),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(connect=self._timeout_s / (of + 1)),
            ) as response:
                headers = response.headers
                return Answer(
                    response.status,
                    content_type=headers.get("Content-Type", ""),
                    retry_after=headers.get("Retry-After"),
                    location=headers.get("Location"),
                    body=await self._read(response),
                )
        except aiohttp.ClientError as error:
            forget_frames(error)
            return self._failure(error, place)

    def _failure(self, error: aiohttp.ClientError, place: PushUrl) -> str:
        """Return why a request failed after connecting. Raises _Unreachable if it was not sent."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            raise _Unreachable(f"{place.origin} cannot be reached: no answer in time")
        if isinstance(error, aiohttp.ClientConnectorError):
            if isinstance(error.os_error, AddressRefused):
                raise self._refused(place, error.os_error.reason)
            raise _Unreachable(f"{place.origin} cannot be reached: {_why(error)}")
        if isinstance(error, aiohttp.ClientPayloadError):
            return "the answer was incomplete"
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return "the connection ended without an answer"
        if isinstance(error, aiohttp.ClientOSError):
            return f"the connection broke: {error.strerror or error}"
        return f"invalid HTTP in the answer: {getattr(error, 'message', error)}"

    def _refused(self, place: PushUrl, reason: str) -> _Unreachable:
        self._warnings.warn("receiver refused", peer=f"{place.host}:{place.port}", reason=reason)
        return _Unreachable(f"{place.origin} is not allowed: {reason}", refused=True)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes | None:
        """Return the whole body; None, without reading on, if it is too long."""
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._answers.max_bytes:
                response.close()
                return None
        return bytes(body)

    def _heed(self, judgement: Judgement) -> None:
        """Apply the receiver's requests that concern all messages."""
        if judgement.slower:
            self.pace.slower(now_ns())
        if judgement.hold_ms:
            self.pace.hold(judgement.hold_ms, now_ns())

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._concurrency,
                    resolver=CheckedResolver(self._addresses),
                    keepalive_timeout=_KEEPALIVE_S,
                    ssl=True if self._tls is None else self._tls,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={
                    "User-Agent": f"orderlane/{version('orderlane')}",
                    "Accept-Encoding": "identity",
                },
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


class _Unreachable(Exception):
    """Connecting failed, so nothing was sent. *refused*: the settings do not allow the address."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused


def _why(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientSSLError):
        return str(error.os_error)  # not an error number of the system
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # the error's own text repeats the address
    return error.strerror or str(error.os_error)


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BYTES else body
