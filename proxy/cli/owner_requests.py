"""Requests of the verbs on leases, offsets and owners, forwarded to the owner if needed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import orjson
import typer

from proxy.cli.connect import actor, ask_proxy, body_of
from proxy.cli.output import say
from proxy.errors import OrderlaneError, OwnedElsewhere

#: Includes the time of the proxy's own requests to brokers.
_TIMEOUT_S = 30.0

ReasonOption = Annotated[str, typer.Option("--reason", help="reason, stored in the audit topic")]


def path_of(*parts: str) -> str:
    """Return the path ``/api/…`` with each of *parts* encoded."""
    return "/api/" + "/".join(quote(part, safe="") for part in parts)


def look(http: str, path: str, **query: Any) -> Any:
    """GET *path* from the proxy, or from the owner that it names. Print which brokers are missing
    in a list.
    """
    given = {name: value for name, value in query.items() if value is not None}
    return _ask(http, f"{path}?{urlencode(given)}" if given else path, None, _TIMEOUT_S)


def change(http: str, path: str, asked: dict[str, Any], *, timeout_s: float = _TIMEOUT_S) -> Any:
    """POST a change to the proxy, or to the owner that it names."""
    given = {name: value for name, value in asked.items() if value is not None}
    return _ask(http, path, body_of({"by": actor(), **given}), timeout_s)


def say_unanswered(found: Mapping[str, Any]) -> None:
    """Print the errors of brokers that are missing in an answer."""
    for broker, why in found.get("unanswered", {}).items():
        say(f"{broker} did not answer: {why}")


def _ask(http: str, path: str, body: bytes | None, timeout_s: float) -> Any:
    asked = partial(ask_proxy, path=path, body=body, timeout_s=timeout_s, on_unanswered=say_missing)
    try:
        return orjson.loads(asked(http))
    except OwnedElsewhere as elsewhere:
        refusals = [str(elsewhere)]
        for address in elsewhere.addresses:
            try:
                answer = asked(address)
            except OrderlaneError as error:
                refusals.append(str(error))
            else:
                say(f"answered by the proxy at {address}, which owns the queue")
                return orjson.loads(answer)
        raise OrderlaneError("; ".join(refusals)) from None


def say_missing(brokers: str) -> None:
    """Print which *brokers* did not answer, so that their rows are missing."""
    say(f"rows may be missing, because these brokers did not answer: {brokers}")
