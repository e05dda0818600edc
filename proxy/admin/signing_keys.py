"""Reads the public keys of an OpenID Connect provider, outside the path of requests."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import orjson
import structlog

from broker_core.clock import now_ns
from broker_core.tracebacks import forget_frames
from proxy.net.jwt_tokens import JwtTokens
from proxy.net.tls import client_context
from proxy.settings.access import JwtSettings

#: Shortest interval between two reads, so that unknown keys cause no flood at the provider.
LEAST_S = 10.0
_TIMEOUT_S = 10.0
_MOST_BYTES = 1 << 20

_log = structlog.get_logger("access")


class SigningKeys:
    """Keeps the keys of *tokens* current; ``failures`` counts failed reads.

    If the provider cannot be reached, the previous keys stay in use; until the first read, every
    JWT is refused.
    """

    def __init__(self, settings: JwtSettings, tokens: JwtTokens) -> None:
        self.failures = 0
        self._settings = settings
        self._tokens = tokens
        self._unknown = asyncio.Event()
        self._read_ns: int | None = None

    def age_s(self) -> float | None:
        """Return the seconds since the last successful read; None before it."""
        return None if self._read_ns is None else (now_ns() - self._read_ns) / 1e9

    async def run(self) -> None:
        """Read the keys at once, regularly, and for tokens of unknown keys. Runs forever."""
        self._tokens.call_on_unknown_key(self._unknown.set)
        async with aiohttp.ClientSession(
            trust_env=False, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)
        ) as session:
            while True:
                await self._refresh(session)
                await asyncio.sleep(min(LEAST_S, self._settings.refresh_s))
                self._unknown.clear()
                rest_s = self._settings.refresh_s - LEAST_S
                # Without keys, try again soon.
                if rest_s > 0 and self._tokens.keys:
                    try:
                        async with asyncio.timeout(rest_s):
                            await self._unknown.wait()
                    except TimeoutError:
                        pass

    async def _refresh(self, session: aiohttp.ClientSession) -> None:
        before = self._tokens.keys
        try:
            self._tokens.use_keys(await self._document(session))
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError) as error:
            self.failures += 1
            _log.error(
                "signing keys not read, the previous ones stay in use",
                url=self._settings.jwks_url,
                keys=len(before),
                reason=str(error) or type(error).__name__,
            )
            forget_frames(error)
            return
        self._read_ns = now_ns()
        if self._tokens.keys != before:
            _log.info("signing keys changed", keys=sorted(self._tokens.keys))

    async def _document(self, session: aiohttp.ClientSession) -> object:
        url = self._settings.jwks_url
        tls: ssl.SSLContext | bool = True
        if url.startswith("https:"):
            tls = client_context(self._settings.ca)
        async with session.get(url, ssl=tls, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError(f"the provider answers {answer.status}")
            content = await answer.content.read(_MOST_BYTES + 1)
            while len(content) <= _MOST_BYTES and not answer.content.at_eof():
                content += await answer.content.read(_MOST_BYTES + 1 - len(content))
            if len(content) > _MOST_BYTES:
                raise ValueError(f"the answer has more than {_MOST_BYTES} bytes")
        return orjson.loads(content)
