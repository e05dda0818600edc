"""Requests to brokers and proxies from the command line."""

from __future__ import annotations

import getpass
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any

import orjson

from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, ConnectionLost, RemotingError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.signing import Credentials
from proxy.cli.output import say
from proxy.errors import OrderlaneError, OwnedElsewhere
from proxy.net.tls import broker_context, client_context
from proxy.settings.proxy_settings import broker_tls
from proxy.settings.types import host_port

_TIMEOUT_S = 3.0
#: Changes are audited first, and the brokers may have to create a topic for that.
CHANGE_TIMEOUT_S = 30.0
#: Header with the names of brokers whose rows are missing in an answer.
_UNANSWERED = "Orderlane-Unanswered"
_PIECE_BYTES = 1 << 16
#: A path that is answered only by a single process.
_PROCESS = "/api/process"
#: Content types of a proxy below ``/api/``; any other means that another server has the port.
_KINDS = ("application/json", "application/x-ndjson")
#: Token for proxies that require one. Not an option, which other users could see in ``ps``.
ADMIN_TOKEN = "ORDERLANE_ADMIN_TOKEN"
#: How long a request is repeated that a hand-over refuses, and how often.
_PATIENCE_S, _AGAIN_S = 10.0, 0.5
#: CA file for nameservers and brokers with TLS, like a proxy's broker_tls.ca.
BROKER_CA = "ORDERLANE_BROKER_TLS__CA"
#: Account for brokers with access control: name and secret.
ACCESS_KEY, SECRET_KEY = "ORDERLANE_BROKER_ACCESS_KEY", "ORDERLANE_BROKER_SECRET_KEY"
#: CA file for proxies with TLS on their HTTP port; empty for the system's CAs. Unset: no TLS.
ADMIN_CA = "ORDERLANE_ADMIN_CA"


@asynccontextmanager
async def broker_client(nameservers: str) -> AsyncIterator[BrokerClient]:
    """Yield a broker client; RemotingErrors become OrderlaneErrors.

    TLS and the account come from the environment: the variables of a proxy's ``broker_tls``, and
    those above.
    """
    addresses = [each.strip() for each in nameservers.split(",") if each.strip()]
    for address in addresses:
        checked_address(address)
    client = BrokerClient(
        nameservers=addresses,
        client_id=f"cli@{os.getpid()}#{now_ns()}",
        tls=broker_context(broker_tls(os.environ)),
        credentials=_credentials(),
    )
    try:
        await client.start()
        yield client
    except ConnectionLost as error:
        raise OrderlaneError(
            f"{error}: check that it is running and that --nameserver is correct; if it uses TLS,"
            f" set {BROKER_CA} to its CA file"
        ) from None
    except RemotingError as error:
        raise OrderlaneError(f"nameserver {nameservers}: {in_words(error)}") from None
    finally:
        await client.close()


def in_words(error: RemotingError) -> str:
    """Return the text of a broker's error, with the variables that may be missing."""
    if not isinstance(error, BrokerError) or error.code != ResponseCode.NO_PERMISSION:
        return str(error)
    return f"{error}: set {ACCESS_KEY} and {SECRET_KEY} to an account of the brokers"


def _credentials() -> Credentials | None:
    access_key, secret = os.environ.get(ACCESS_KEY), os.environ.get(SECRET_KEY)
    if not access_key and not secret:
        return None
    if not access_key or not secret:
        missing = SECRET_KEY if access_key else ACCESS_KEY
        raise OrderlaneError(
            f"{missing} is not set: a broker account needs its name in {ACCESS_KEY} and its secret"
            f" in {SECRET_KEY}"
        )
    return Credentials(access_key, secret)


def proxy_groups(http: str) -> dict[str, Any]:
    """Return the proxy's view of its groups. Raises OrderlaneError if it does not answer."""
    return dict(orjson.loads(ask_proxy(http, "/api/groups")))


def one_of(http: str) -> str:
    """Return the address of a single process behind *http*.

    An address shared by workers leads each request to any of them, so their answers would not
    belong together.
    """
    try:
        ask_proxy(http, _PROCESS)
    except OwnedElsewhere as elsewhere:
        return next(filter(_answers, elsewhere.addresses), http)
    except OrderlaneError:
        pass  # the next request reports the error
    return http


def each_of(http: str) -> list[str]:
    """Return the addresses of all processes behind *http*: several if workers share it."""
    try:
        ask_proxy(http, _PROCESS)
    except OwnedElsewhere as elsewhere:
        return list(elsewhere.addresses) or [http]
    except OrderlaneError:
        pass  # the next request reports the error
    return [http]


def _answers(http: str) -> bool:
    try:
        ask_proxy(http, _PROCESS)
    except OrderlaneError:
        return False
    return True


def ask_proxy(
    http: str,
    path: str,
    *,
    body: bytes | None = None,
    timeout_s: float = _TIMEOUT_S,
    method: str | None = None,
    on_unanswered: Callable[[str], None] = lambda _: None,
) -> bytes:
    """GET *path* from a proxy's HTTP port, or send *body* by POST or *method*.

    A request that is refused because of a hand-over is repeated for 10 s. *on_unanswered* is called
    with the names of brokers whose rows are missing in a list. Raises OrderlaneError.
    """
    with _asked_patiently(http, path, body=body, timeout_s=timeout_s, method=method) as answer:
        if (silent := answer.headers.get(_UNANSWERED)) is not None:
            on_unanswered(silent)
        try:
            return bytes(answer.read())
        except TimeoutError:
            raise _too_late(http, path, timeout_s) from None
        except HTTPException as error:
            raise _broken_off(http, error) from None
        except OSError as error:
            raise _no_answer(http, path, error) from None


def body_of(asked: Mapping[str, Any]) -> bytes:
    """Encode *asked* as JSON.

    NaN and infinities become strings, which the proxy refuses with an explanation. Raises
    OrderlaneError for values without a JSON form, UnicodeEncodeError for invalid text.
    """
    try:
        plain = json.loads(json.dumps(asked, default=str), parse_constant=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise OrderlaneError(f"the request cannot be written as JSON: {error}") from None
    return json.dumps(plain, ensure_ascii=False).encode()


def lines_of_proxy(
    http: str, path: str, *, on_unanswered: Callable[[str], None] = lambda _: None
) -> Iterator[bytes]:
    """Yield the lines of a stream at *path*, and an empty one for a piece without line ends, as
    while the proxy searches. *on_unanswered*: see ``ask_proxy``. Raises OrderlaneError, also if it
    is cut short.
    """
    with _asked(http, path, timeout_s=CHANGE_TIMEOUT_S) as answer:
        if (silent := answer.headers.get(_UNANSWERED)) is not None:
            on_unanswered(silent)
        rest = b""
        while piece := _piece(http, answer):
            lines = [each.lstrip(b" ") for each in (rest + piece).split(b"\n")]
            rest = lines.pop()
            yield from lines or (b"",)


def _piece(http: str, answer: HTTPResponse) -> bytes:
    try:
        return answer.read1(_PIECE_BYTES)
    except (OSError, HTTPException) as error:
        raise _broken_off(http, error) from None


def _broken_off(http: str, error: Exception) -> OrderlaneError:
    return OrderlaneError(
        f"the response of the proxy at {http} is incomplete: the connection broke"
        f" ({type(error).__name__})"
    )


class NoAnswerInTime(OrderlaneError):
    """A proxy accepted the connection, but did not answer the request in time."""


class _HandOver(OrderlaneError):
    """The request was refused during a hand-over, changed nothing, and may be repeated."""


def _asked_patiently(http: str, path: str, **request: Any) -> HTTPResponse:
    until = time.monotonic() + _PATIENCE_S
    waits = False
    while True:
        try:
            return _asked(http, path, **request)
        except _HandOver:
            if time.monotonic() >= until:
                raise
        if not waits:
            say(f"a queue changes its owner: trying again for up to {_PATIENCE_S:g} s")
            waits = True
        time.sleep(_AGAIN_S)


def _asked(
    http: str,
    path: str,
    *,
    body: bytes | None = None,
    timeout_s: float,
    method: str | None = None,
) -> HTTPResponse:
    checked_address(http)
    try:
        tls = _tls()
        scheme = "http" if tls is None else "https"
        asked = urllib.request.Request(
            f"{scheme}://{http}{path}", data=body, headers=_headers(), method=method
        )
        answer: HTTPResponse = _opener(tls).open(asked, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        sentence = f"the proxy at {http} answers {error.code}: {_sentence(error)}"
        if error.code == HTTPStatus.MISDIRECTED_REQUEST:
            owners = error.headers.get("Orderlane-Owners", "").split(", ")
            raise OwnedElsewhere(sentence, addresses=tuple(filter(None, owners))) from None
        if error.code == HTTPStatus.CONFLICT and "Retry-After" in error.headers:
            raise _HandOver(sentence) from None
        raise OrderlaneError(sentence) from None
    except TimeoutError:  # while connecting, urllib would have wrapped it
        raise _too_late(http, path, timeout_s) from None
    except (OSError, HTTPException, UnicodeError) as error:
        raise _no_answer(http, path, error) from None
    kind = answer.headers.get_content_type()
    if path.startswith("/api/") and kind not in _KINDS:
        answer.close()
        raise _no_answer(http, path, f"the server there sends {kind}")
    return answer


def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Return an opener that connects directly, whatever proxies the environment names, and follows
    no redirects: either would take the token to another server.
    """
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.HTTPHandler())
    opener.add_handler(urllib.request.HTTPSHandler(context=tls))
    opener.add_handler(urllib.request.HTTPDefaultErrorHandler())
    opener.add_handler(urllib.request.HTTPErrorProcessor())
    return opener


def _tls() -> ssl.SSLContext | None:
    ca_file = os.environ.get(ADMIN_CA)
    if ca_file is None:
        return None
    try:
        return client_context(ca_file or None)
    except ValueError as error:
        raise OrderlaneError(f"{ADMIN_CA}: {ca_file} {error}") from None


def _headers() -> dict[str, str]:
    token = os.environ.get(ADMIN_TOKEN, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise OrderlaneError(f"{ADMIN_TOKEN} is invalid: set it to a token made by orderlane token")
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    return {"Content-Type": "application/json", **shown}


def _too_late(http: str, path: str, timeout_s: float) -> NoAnswerInTime:
    return NoAnswerInTime(
        f"the proxy at http://{http}{path} accepted the request, but did not answer within"
        f" {timeout_s:g} s"
    )


def _no_answer(http: str, path: str, error: Exception | str) -> OrderlaneError:
    reason = getattr(error, "reason", error)
    if isinstance(error, HTTPException):
        reason = f"the server there does not speak HTTP: {type(error).__name__}"
    return OrderlaneError(
        f"no proxy answers at http://{http}{path} ({reason}): check that it is running and that"
        f" --http is correct; if its port uses TLS, set {ADMIN_CA} to its CA file"
    )


def change_at_all(http: str, path: str, body: bytes) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """POST *body* to a proxy, and to the owners of further queues that the answers name.

    Returns answers by address, and the errors of proxies that failed. Raises OrderlaneError if all
    failed.
    """
    done: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    left, asked = [http], set()
    while left:
        address = left.pop(0)
        asked.add(address)
        try:
            answer = ask_proxy(address, path, body=body, timeout_s=CHANGE_TIMEOUT_S)
        except OwnedElsewhere as elsewhere:
            owners = list(elsewhere.addresses)
            if not owners:
                failed.append(str(elsewhere))
        except OrderlaneError as error:
            failed.append(str(error))
            continue
        else:
            done[address] = orjson.loads(answer)
            owners = done[address]["owners"]
        left += [each for each in owners if each not in asked and each not in left]
    if not done:
        raise OrderlaneError("\n".join(failed))
    return done, failed


def given_reason(reason: str | None, dry_run: bool) -> dict[str, str]:
    """Return the reason as a request field; a dry run does not need one."""
    if reason is None and dry_run:
        reason = "dry run"
    return {} if reason is None else {"reason": reason}


def actor() -> str:
    """Return the user's name for the audit topic."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without a name
        return f"user {os.getuid()}"


def _sentence(answer: urllib.error.HTTPError) -> str:
    """Return the error text of an unsuccessful response."""
    try:
        content = answer.read()
    except (OSError, HTTPException):  # the connection broke
        return str(answer.reason)
    try:
        return str(orjson.loads(content)["error"])
    except (ValueError, KeyError, TypeError):  # the response came from an intermediary
        return content.decode(errors="replace").strip()


def checked_address(address: str) -> tuple[str, int]:
    """Return host and port of *address*. Raises OrderlaneError if it is invalid."""
    try:
        return host_port(address)
    except ValueError as error:
        raise OrderlaneError(f"address {address!r} {error}") from None
