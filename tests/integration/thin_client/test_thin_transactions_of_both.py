"""Transactions of both producers at a scripted proxy, and misuse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from thrift.Thrift import TApplicationException

from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from thin_client import (
    AsyncProducer,
    Decision,
    PreparedMessage,
    Producer,
    SendFailed,
    Transactions,
)
from thrift_idl import producer

Scripted = Callable[[Request], Any]


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


def unknown(_message: PreparedMessage) -> Decision:
    return Decision.UNKNOWN


def options(**changed: Any) -> Transactions:
    return Transactions(**{"group": "billing", "topics": ["orders"], "check": unknown, **changed})


def prepared(code: int = 0, text: str | None = None) -> Scripted:
    async def answer(_request: Request) -> producer.Prepared:
        return producer.Prepared(code=code, msg=text, transaction=None if code else "T1")

    return answer


def ended(code: int = 0, text: str = "OK") -> Scripted:
    async def answer(_request: Request) -> producer.Result:
        return producer.Result(code=code, msg=text)

    return answer


async def hang_up(_request: Request) -> None:
    raise HangUp


async def no_method(request: Request) -> None:
    text = f"unknown method {request.method!r}"
    raise TApplicationException(TApplicationException.UNKNOWN_METHOD, text)


async def no_checks(_request: Request) -> producer.ChecksAnswer:
    await asyncio.sleep(20)
    return producer.ChecksAnswer(code=0, checks=[])


async def blocking(proxy: ScriptedProxy, *, rollback: bool = False) -> None:
    def run() -> None:
        sender = Producer(proxy.address, transactions=options())
        try:
            with sender.transaction("orders", b"1", key="k", tag="t") as transaction:
                if rollback:
                    transaction.rollback()
        finally:
            sender.close()

    await asyncio.to_thread(run)


async def on_asyncio(proxy: ScriptedProxy, *, rollback: bool = False) -> None:
    sender = AsyncProducer(proxy.address, transactions=options())
    try:
        async with sender.transaction("orders", b"1", key="k", tag="t") as transaction:
            if rollback:
                await transaction.rollback()
    finally:
        await sender.close()


both = pytest.mark.parametrize("run", [blocking, on_asyncio])


@both
@pytest.mark.parametrize("rollback", [False, True])
async def test_a_block_prepares_and_ends(proxy: ScriptedProxy, run: Any, rollback: bool) -> None:
    proxy.script("transactionChecks", *[no_checks] * 5)
    proxy.script("prepareTransaction", prepared())
    proxy.script("endTransaction", ended())
    await run(proxy, rollback=rollback)
    (half,), (end,) = proxy.of("prepareTransaction"), proxy.of("endTransaction")
    message = half.argument.message
    assert (half.argument.group, half.argument.checkAfterS) == ("billing", 60)
    assert (message.topic, message.body, message.key, message.tags) == ("orders", b"1", "k", "t")
    assert (end.argument.transaction, end.argument.outcome) == ("T1", 2 if rollback else 1)


@both
async def test_a_half_message_that_may_be_stored_is_not_repeated(
    proxy: ScriptedProxy, run: Any
) -> None:
    proxy.script("transactionChecks", *[no_checks] * 5)
    for failure in (hang_up, prepared(12, "the broker did not answer in time")):
        proxy.script("prepareTransaction", failure)
        with pytest.raises(SendFailed, match=r"preparing .*may have been prepared") as failed:
            await run(proxy)
        assert failed.value.outcome_unknown
    assert len(proxy.of("prepareTransaction")) == 2
    assert proxy.of("endTransaction") == []


@both
async def test_what_was_certainly_not_stored_is_repeated(proxy: ScriptedProxy, run: Any) -> None:
    proxy.script("transactionChecks", *[no_checks] * 5)
    proxy.script("prepareTransaction", prepared(15, "too fast"), prepared(70), prepared())
    proxy.script("endTransaction", hang_up, ended(10, "no broker"), ended())
    await run(proxy)
    ids = {each.argument.message.properties["UNIQ_KEY"] for each in proxy.of("prepareTransaction")}
    assert len(ids) == 1
    assert len(proxy.of("endTransaction")) == 3


@both
async def test_a_proxy_of_an_earlier_version_is_named_in_one_sentence(
    proxy: ScriptedProxy, run: Any
) -> None:
    proxy.script("transactionChecks", *[no_method] * 5)
    proxy.script("prepareTransaction", no_method)
    with pytest.raises(SendFailed) as failed:
        await run(proxy)
    assert not failed.value.outcome_unknown
    text = str(failed.value).replace(proxy.address, "HERE").replace(failed.value.message_id, "ID")
    assert text == (
        "preparing a message to orders failed: the proxy at HERE does not support transactions:"
        " upgrade it (message ID: not prepared)"
    )


async def test_a_decision_goes_back_and_a_failed_check_decides_nothing(
    proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    def check(message: PreparedMessage) -> Any:
        if message.message_id == "fails":
            raise ValueError("no database")
        return {"yes": Decision.COMMIT, "no": Decision.ROLLBACK}.get(message.message_id, True)

    async def questions(_request: Request) -> producer.ChecksAnswer:
        names = ("fails", "yes", "true", "no")
        message = producer.Message(topic="orders", body=b"1")
        checks = [producer.TransactionCheck(f"T {each}", message, each) for each in names]
        return producer.ChecksAnswer(code=0, checks=checks)

    proxy.script("transactionChecks", questions, no_checks, no_checks)
    proxy.script("endTransaction", ended(), ended(72, "it ended before"))
    async with AsyncProducer(proxy.address, transactions=options(check=check)):
        await proxy.until(lambda: len(proxy.of("endTransaction")) == 2)
        await proxy.until(lambda: len(proxy.of("transactionChecks")) == 2)
    answers = [(e.argument.transaction, e.argument.outcome) for e in proxy.of("endTransaction")]
    assert answers == [("T yes", 1), ("T no", 2)]
    assert "the check of message fails failed" in caplog.text
    assert "the check of message true returned True: expected Decision.COMMIT" in caplog.text
    assert "the outcome of message no was not stored: it ended before" in caplog.text


@pytest.mark.sockets
async def test_the_thread_of_a_blocking_producer_answers_checks(proxy: ScriptedProxy) -> None:
    threads = []

    def check(_message: PreparedMessage) -> Decision:
        threads.append(threading.current_thread().name)
        return Decision.COMMIT

    async def question(_request: Request) -> producer.ChecksAnswer:
        message = producer.Message(topic="orders", body=b"1")
        return producer.ChecksAnswer(
            code=0, checks=[producer.TransactionCheck("T1", message, "id")]
        )

    proxy.script("transactionChecks", question, no_checks)
    proxy.script("endTransaction", ended())
    sender = Producer(proxy.address, transactions=options(check=check))
    with sender:
        await proxy.until(lambda: len(proxy.of("endTransaction")) == 1)
    assert threads == ["orderlane checks"]


class NoException(BaseException):
    pass


@pytest.mark.sockets
@pytest.mark.parametrize("form", [Producer, AsyncProducer])
@pytest.mark.parametrize("error", [StopIteration, SystemExit, NoException, asyncio.CancelledError])
async def test_no_exception_of_a_check_ends_the_answers(
    proxy: ScriptedProxy,
    form: type[Producer] | type[AsyncProducer],
    error: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next check is answered; the broker asks again about the failed one."""

    def check(message: PreparedMessage) -> Decision:
        if message.message_id == "fails":
            raise error
        return Decision.COMMIT

    async def questions(_request: Request) -> producer.ChecksAnswer:
        message = producer.Message(topic="orders", body=b"1")
        checks = [producer.TransactionCheck(f"T {e}", message, e) for e in ("fails", "yes")]
        return producer.ChecksAnswer(code=0, checks=checks)

    proxy.script("transactionChecks", questions, no_checks, no_checks)
    proxy.script("endTransaction", ended())
    sender = form(proxy.address, transactions=options(check=check))
    try:
        if isinstance(sender, AsyncProducer):
            await sender.__aenter__()
        else:
            sender.__enter__()
        await proxy.until(lambda: len(proxy.of("transactionChecks")) == 2, 20)
    finally:
        sender.close()
    assert [each.argument.transaction for each in proxy.of("endTransaction")] == ["T yes"]
    assert "the check of message fails failed" in caplog.text


# ---- misuse -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"group": 7}, "group is 7: expected text"),
        ({"group": ""}, "group is empty: expected the name of a producer group"),
        ({"topics": "orders"}, "topics is 'orders': expected a list of names"),
        ({"topics": []}, r"topics is \[\]: expected 1 to 100 names"),
        ({"topics": [""]}, r"topics is \[''\]: expected 1 to 100 names"),
        ({"topics": None}, "topics is None: expected a list of names"),
        ({"check": None}, "check is None: expected a function"),
        ({"check_after_s": -1}, "check_after_s is -1: expected 0 or more"),
        ({"check_after_s": 1.5}, "check_after_s is 1.5: expected a whole number"),
    ],
)
def test_invalid_options_are_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        options(**changed)


async def _coroutine_check(_message: PreparedMessage) -> Decision:
    return Decision.UNKNOWN


def test_invalid_calls_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="created without transactions: create it with"):
        Producer("127.0.0.1:1").transaction("orders", b"1")
    with pytest.raises(TypeError, match="transactions is 'billing': expected Transactions"):
        Producer("127.0.0.1:1", transactions="billing")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="check is an async def"):
        Producer("127.0.0.1:1", transactions=options(check=_coroutine_check))
    sender = Producer("127.0.0.1:1", transactions=options())
    with pytest.raises(ValueError, match="topic 'other' is not one of the topics of Transactions"):
        sender.transaction("other", b"1")
    with pytest.raises(TypeError, match="the body of a message to orders is int"):
        sender.transaction("orders", 1)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="was not entered yet: call rollback"):
        sender.transaction("orders", b"1").rollback()


async def test_a_transaction_is_entered_once(proxy: ScriptedProxy) -> None:
    proxy.script("transactionChecks", *[no_checks] * 5)
    proxy.script("prepareTransaction", prepared())
    proxy.script("endTransaction", ended())
    async with AsyncProducer(proxy.address, transactions=options()) as sender:
        transaction = sender.transaction("orders", b"1")
        async with transaction:
            pass
        with pytest.raises(RuntimeError, match="has ended: call transaction"):
            await transaction.__aenter__()
        with pytest.raises(RuntimeError, match="has ended: call rollback"):
            await transaction.rollback()
