"""What verbs on leases, offsets and owners have in common: asking, and going to the owner."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote, urlencode

import orjson
import typer

from proxy.cli.connect import actor, ask_proxy, body_of
from proxy.cli.output import say
from proxy.errors import OrderlaneError, OwnedElsewhere

#: Of what a proxy does with brokers before it answers.
_TIMEOUT_S = 30.0

ReasonOption = Annotated[str, typer.Option("--reason", help="why, for the audit topic")]


def path_of(*parts: str) -> str:
    """``/api/…`` of *parts*, each encoded."""
    return "/api/" + "/".join(quote(part, safe="") for part in parts)


def look(http: str, path: str, **query: Any) -> Any:
    """What the proxy answers, or the one it names if another owns what is asked for."""
    given = {name: value for name, value in query.items() if value is not None}
    return _ask(http, f"{path}?{urlencode(given)}" if given else path, None, _TIMEOUT_S)


def change(http: str, path: str, asked: dict[str, Any], *, timeout_s: float = _TIMEOUT_S) -> Any:
    """Have something changed, by the proxy or by the one that it names."""
    given = {name: value for name, value in asked.items() if value is not None}
    return _ask(http, path, body_of({"by": actor(), **given}), timeout_s)


def _ask(http: str, path: str, body: bytes | None, timeout_s: float) -> Any:
    try:
        return orjson.loads(ask_proxy(http, path, body=body, timeout_s=timeout_s))
    except OwnedElsewhere as elsewhere:
        refusals = [str(elsewhere)]
        for address in elsewhere.addresses:
            try:
                answer = ask_proxy(address, path, body=body, timeout_s=timeout_s)
            except OrderlaneError as error:
                refusals.append(str(error))
            else:
                say(f"asked the proxy at {address}, which owns the queue")
                return orjson.loads(answer)
        raise OrderlaneError("; ".join(refusals)) from None
