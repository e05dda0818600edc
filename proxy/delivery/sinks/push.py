"""Delivers messages as HTTP requests; what to send and what an answer means, the core decides.

One time limit covers an attempt whole: connecting, sending, and the last byte of the answer. When
it ends, the connection is closed, so an answer that comes later reaches nobody. Where nothing
could be connected to, nothing was sent: the next URL is tried, and only if none is left the target
is down. Cookies, redirects and proxies from the environment are nobody's wish here.
"""

from __future__ import annotations

import asyncio
import io
import os
import ssl
from collections.abc import Mapping, Sequence
from importlib.metadata import version

import aiohttp
from yarl import URL

from broker_core.clock import now_ns, wall_ms
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
from proxy.core.delivery.target_pause import TargetPause
from proxy.delivery.deliverer import ACKED, Delivery, TargetDown, Verdict, failed
from proxy.delivery.trust import trust_of
from proxy.settings.sinks.push import PushSettings, answer_rules_of, push_rules_of

#: An idle connection is closed before servers do it themselves, which many do after 5 s: a request
#: that crosses such an end on its way would be a failure that is nobody's fault.
_KEEPALIVE_S = 4.0
#: Part of the time limit after which an attempt gives up itself, a moment before whoever started it
#: does, so that the reason says where.
_OF_TIMEOUT = 0.98
#: Above it a body is written bit by bit, so that the loop serves others meanwhile.
_LARGE_BYTES = 1 << 20


def make(settings: PushSettings, secrets: Mapping[str, bytes]) -> HttpPush:
    """Return the deliverer of one topic. Raises ValueError if a secret or a file does not fit."""
    return HttpPush(
        push_rules_of(settings, secrets),
        answer_rules_of(settings),
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
        timeout_s: float,
        concurrency: int,
        max_rate: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """*tls* None: receivers' certificates are of authorities that the system trusts."""
        self.pace = PushPace(max_rate)
        self._rules = rules
        self._answers = answers
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._tls = tls
        self._pauses = {url.origin: TargetPause() for url in rules.urls}
        self._session: aiohttp.ClientSession | None = None

    async def deliver(self, delivery: Delivery) -> Verdict:
        """One request, to the URL whose turn it is, or to the next that can be connected to.

        Raises TargetDown if none of the settings' URLs can.
        """
        try:
            places, own = places_of(self._rules, delivery)
            async with asyncio.timeout(self._timeout_s * _OF_TIMEOUT):
                judgement = await self._push(delivery, places, own=own)
        except Unsendable as error:
            return failed(str(error), reject=True)
        except TimeoutError:
            return failed(f"{places[0].origin}: no whole answer within {self._timeout_s:g} s")
        except _Unreachable as error:
            if own:  # whoever named it may have made it up: the others can be delivered
                return failed(str(error))
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

    # ---- inside ---------------------------------------------------------------------------------

    async def _push(self, delivery: Delivery, places: Sequence[PushUrl], *, own: bool) -> Judgement:
        """The first answer from *places*, those last that were found down lately."""
        began_ns = now_ns()
        pauses = {} if own else self._pauses

        def is_down(place: PushUrl) -> bool:
            pause = pauses.get(place.origin)
            return pause is not None and not pause.places(1, under_way=0, now_ns=began_ns)

        reasons: dict[str, str] = {}  # by origin
        for place in sorted(places, key=is_down):
            if place.origin in reasons:
                continue
            request = request_of(self._rules, delivery, place, at_s=wall_ms() // 1000)
            try:
                answer = await self._ask(request, place, of=len(places))
            except _Unreachable as error:
                reasons[place.origin] = str(error)
                if (pause := pauses.get(place.origin)) is not None:
                    pause.found_down(str(error), began_ns=began_ns, now_ns=now_ns())
                continue
            if (pause := pauses.get(place.origin)) is not None:
                pause.answered(began_ns=began_ns)
            if isinstance(answer, str):
                return Judgement(f"{place.origin}: {answer}")
            return judge(answer, self._answers, wall_ms=wall_ms()).at(place.origin)
        raise _Unreachable("; ".join(reasons.values()))

    async def _ask(self, request: PushRequest, place: PushUrl, *, of: int) -> Answer | str:
        """The answer of *place*, or why there is none though it was connected to. A connection
        takes its share of the time where there are several places: another one is left some.
        """
        try:
            async with self._open().request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=_payload(request.body),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(sock_connect=self._timeout_s / (of + 1)),
            ) as response:
                headers = response.headers
                return Answer(
                    response.status,
                    content_type=headers.get("Content-Type", ""),
                    retry_after=headers.get("Retry-After"),
                    location=headers.get("Location"),
                    body=await self._read(response),
                )
        except aiohttp.ConnectionTimeoutError:
            raise _Unreachable(f"{place.origin} cannot be reached: no answer in time") from None
        except aiohttp.ClientConnectorError as error:
            raise _Unreachable(f"{place.origin} cannot be reached: {_why(error)}") from None
        except aiohttp.ClientPayloadError:
            return "the answer ended in the middle"
        except aiohttp.ServerDisconnectedError:
            return "the connection ended without an answer"
        except aiohttp.ClientOSError as error:
            return f"the connection broke: {error.strerror or error}"
        except aiohttp.ClientError as error:
            return f"an answer that is no HTTP: {getattr(error, 'message', error)}"

    async def _read(self, response: aiohttp.ClientResponse) -> bytes | None:
        """The whole body; None if it is too long, and then nobody reads on."""
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._answers.max_bytes:
                response.close()
                return None
        return bytes(body)

    def _heed(self, judgement: Judgement) -> None:
        """Do what the receiver wishes for all messages."""
        if judgement.slower:
            self.pace.slower(now_ns())
        if judgement.hold_ms:
            self.pace.hold(judgement.hold_ms, now_ns())

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._concurrency,
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
    """Nothing could be connected to, so nothing was sent."""


def _why(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientSSLError):
        return str(error.os_error)  # its number is none of the system's
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # its own text has the address once more
    return error.strerror or str(error.os_error)


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BYTES else body
