"""Asking brokers and proxies from the command line."""

from __future__ import annotations

import getpass
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any

import orjson

from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.errors import ConnectionLost, RemotingError
from proxy.errors import OrderlaneError, OwnedElsewhere
from proxy.setting_types import host_port

_TIMEOUT_S = 3.0
#: What changes something is put on record first, and the brokers may have to make a topic for it.
CHANGE_TIMEOUT_S = 30.0
_PIECE_BYTES = 1 << 16
_HEADERS = {"Content-Type": "application/json"}


@asynccontextmanager
async def broker_client(nameservers: str) -> AsyncIterator[BrokerClient]:
    """A client for one verb. A RemotingError inside becomes one sentence."""
    addresses = [each.strip() for each in nameservers.split(",") if each.strip()]
    for address in addresses:
        checked_address(address)
    client = BrokerClient(nameservers=addresses, client_id=f"cli@{os.getpid()}#{now_ns()}")
    try:
        await client.start()
        yield client
    except ConnectionLost as error:
        raise OrderlaneError(f"{error}: is it running, is --nameserver right?") from None
    except RemotingError as error:
        raise OrderlaneError(f"nameserver {nameservers}: {error}") from None
    finally:
        await client.close()


def proxy_groups(http: str) -> dict[str, Any]:
    """What the proxy says of its groups. Raises OrderlaneError if it cannot be asked."""
    return dict(orjson.loads(ask_proxy(http, "/api/groups")))


def ask_proxy(
    http: str,
    path: str,
    *,
    body: bytes | None = None,
    timeout_s: float = _TIMEOUT_S,
    method: str | None = None,
) -> bytes:
    """GET *path* from a proxy's HTTP port, or POST *body* to it, or as *method* says.

    Raises OrderlaneError in one sentence.
    """
    with _asked(http, path, body=body, timeout_s=timeout_s, method=method) as answer:
        try:
            return bytes(answer.read())
        except OSError as error:
            raise _no_answer(http, path, error) from None


def lines_of_proxy(http: str, path: str) -> Iterator[bytes]:
    """The lines of a stream at *path*. Raises OrderlaneError, also if the stream breaks off."""
    with _asked(http, path, timeout_s=CHANGE_TIMEOUT_S) as answer:
        rest = b""
        while piece := _piece(http, answer):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines


def _piece(http: str, answer: HTTPResponse) -> bytes:
    try:
        return answer.read1(_PIECE_BYTES)
    except (OSError, HTTPException) as error:
        raise OrderlaneError(
            f"the answer of the proxy at {http} broke off ({type(error).__name__}): what came is"
            " not all"
        ) from None


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
        asked = urllib.request.Request(
            f"http://{http}{path}", data=body, headers=_HEADERS, method=method
        )
        answer: HTTPResponse = urllib.request.urlopen(asked, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        sentence = f"the proxy at {http} answers {error.code}: {_sentence(error.read())}"
        if error.code == HTTPStatus.MISDIRECTED_REQUEST:
            owners = error.headers.get("Orderlane-Owners", "").split(", ")
            raise OwnedElsewhere(sentence, addresses=tuple(filter(None, owners))) from None
        raise OrderlaneError(sentence) from None
    except OSError as error:
        raise _no_answer(http, path, error) from None
    return answer


def _no_answer(http: str, path: str, error: OSError) -> OrderlaneError:
    reason = getattr(error, "reason", error)
    return OrderlaneError(
        f"no proxy answers at http://{http}{path} ({reason}): is it running, is --http right?"
    )


def change_at_all(http: str, path: str, body: bytes) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """POST *body* to a proxy, and to all that its answer says own other queues of what it is about.

    Their answers by address, and sentences of those that failed. Raises OrderlaneError if all did.
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
    """For verbs that can also only count: that has a reason of its own."""
    if reason is None and dry_run:
        reason = "dry run"
    return {} if reason is None else {"reason": reason}


def actor() -> str:
    """Who asks, for the audit."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without a name
        return f"user {os.getuid()}"


def _sentence(answer: bytes) -> str:
    """What an answer that is no success says."""
    try:
        return str(orjson.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):  # something between us and the proxy answered
        return answer.decode(errors="replace").strip()


def checked_address(address: str) -> tuple[str, int]:
    """Host and port of *address*. Raises OrderlaneError if it has none."""
    try:
        return host_port(address)
    except ValueError as error:
        raise OrderlaneError(f"address {address!r} {error}") from None
