"""Answers to refused requests of consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from proxy.downstream.port.connection import Reply
from proxy.downstream.port.requests import linger_ms, pull_response, refusal
from proxy.errors import OrderlaneError
from thrift_idl import consumer_service


def answer_unserved(request: Any, reply: Reply, error: OrderlaneError, *, ours: bool) -> None:
    """Refuse a pull because of *error*: own clients get the error, DDMQ's an empty answer."""
    if ours:
        refuse(reply, consumer_service.pull_result, error)
        return
    # At an exception, DDMQ's C++ client drops its acks and its Go client stalls for 5 s; an
    # immediate answer would make them spin.
    answer = consumer_service.pull_result(success=pull_response([], group="", ours=False, home=""))
    delay_s = linger_ms(request, ours=False) / 1000
    asyncio.get_running_loop().call_later(delay_s, reply, answer)


def refuse(reply: Reply, result: Callable[..., Any], error: OrderlaneError) -> None:
    """Answer with the generated *result* that holds a PullException for *error*."""
    reply(result(error=refusal(error)))
