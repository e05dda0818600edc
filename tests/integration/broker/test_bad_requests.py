"""Bad input on the remoting ports: every request code, its fields and its body.

A request that cannot be served is answered with a code of the protocol and one sentence; its
connection stays open, nothing is stored, and only warnings are logged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
from broker_core.remoting.command import RemotingCommand, SerializeType
from tests.support.bad_requests import (
    AT_BROKER,
    AT_NAMESERVER,
    Good,
    absurd_fields,
    bad_bodies,
    wrong_fields,
)
from tests.support.raw_requests import Asker, asking

SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
#: Answers of a pull without messages: their remark is the name of the status.
EMPTY_PULLS = {19, 20, 21}


@pytest.fixture
async def asker(tmp_path: Path) -> AsyncIterator[Asker]:
    async with asking(tmp_path) as asker:
        yield asker


def commands(code: int, good: Good) -> list[tuple[RemotingCommand, str | None]]:
    """Return all requests to try with *code*, and the expected remark if one must be refused."""
    body = good.content()
    tried: list[tuple[RemotingCommand, str | None]] = []
    for serialize in SerializeType:
        wrong = [(ext, body, remark) for ext, remark in wrong_fields(good)]
        absurd = [(ext, body, None) for ext in absurd_fields(good)]
        bodies = [(good.ext(), bad, None) for bad in bad_bodies(good)]
        tried += [
            (RemotingCommand(code, ext=ext, body=content, serialize=serialize), remark)
            for ext, content, remark in (*wrong, *absurd, *bodies)
        ]
    return tried


def assert_lawful(answer: RemotingCommand, request: RemotingCommand, remark: str | None) -> None:
    """Check for a code of the protocol, and one sentence unless it is a success."""
    assert answer.code in set(ResponseCode)
    assert answer.serialize is request.serialize
    if remark is not None:
        assert (answer.code, answer.remark) == (1, remark[:1000])
    elif answer.code not in {0, *EMPTY_PULLS}:
        said = answer.remark or ""
        assert 10 < len(said) <= 1000
        assert said.isprintable()


async def assert_survives(asker: Asker, address: str, code: int, good: Good) -> None:
    """Check that every request is answered on one connection, and only successful sends are
    stored.
    """
    if good.first is not None:
        first = AT_BROKER[good.first]
        await asker.ask(address, RemotingCommand(good.first, ext=first.ext(), body=first.content()))
    (answer,) = await asker.ask(address, RemotingCommand(code, ext=good.ext(), body=good.content()))
    # 17: the route of a topic not registered here; 604: a handle of a message that does not wait
    assert answer.code in {0, 17, 604}, answer.remark
    before = await asker.stored()
    tried = commands(code, good)
    answers = await asker.ask(address, *(request for request, _ in tried))
    for answer, (request, remark) in zip(answers, tried, strict=True):
        assert_lawful(answer, request, remark)
    if code in SENDS:
        assert await asker.stored() == before + sum(answer.code == 0 for answer in answers)
    else:
        assert await asker.stored() == before
    asker.assert_nothing_broke()


@pytest.mark.parametrize("code", AT_BROKER, ids=request_name)
async def test_a_broker_under_bad_requests(asker: Asker, code: int) -> None:
    await assert_survives(asker, asker.cluster.broker_address, code, AT_BROKER[code])


@pytest.mark.parametrize("code", AT_NAMESERVER, ids=request_name)
async def test_a_nameserver_under_bad_requests(asker: Asker, code: int) -> None:
    await assert_survives(asker, asker.cluster.nameserver, code, AT_NAMESERVER[code])


async def test_every_request_code_served_is_tried(asker: Asker) -> None:
    """If this fails: a new handler needs its row in tests/support/bad_requests.py."""
    assert asker.cluster.broker.server.codes == set(AT_BROKER)
    assert NameServer().server.codes == set(AT_NAMESERVER)
    for code, good in (AT_BROKER | AT_NAMESERVER).items():
        said = {*good.ext(), *good.unset}
        assert {name for name, _, _ in good.fields()} == said, request_name(code)
