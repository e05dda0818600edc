"""Commits (7112) and sends (7113) of many queues by one request, each stored or refused by
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from broker_core.access.file import CallerRights
from broker_core.access.needs import Need, committing_needs, sending_needs
from broker_core.broker.groups.offsets_processor import OffsetProcessor
from broker_core.broker.sending.processor import SendProcessor
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.late_answer import LateAnswer
from broker_core.names import RETRY_PREFIX
from broker_core.printable import printable
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import LIFE, SendMessageHeader, UpdateConsumerOffsetHeader
from broker_core.remoting.together import (
    Refusal,
    SendOutcome,
    SentEntry,
    commits_from_bytes,
    outcomes_to_bytes,
    refusals_to_bytes,
    sends_from_bytes,
)
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

_MAX_REMARK_CHARS = 1000
#: A template that does not exist: no send creates a topic.
_NO_MODEL = "#"

_log = structlog.get_logger("broker")


class TogetherProcessor:
    """Passes the entries of a request to the processors of single requests."""

    def __init__(
        self,
        offsets: OffsetProcessor,
        sends: SendProcessor,
        *,
        rights_of: Callable[[RemotingCommand, RemotingChannel], CallerRights | None],
    ) -> None:
        """*rights_of* returns the rights of a request's account, None if it may do everything."""
        self._offsets = offsets
        self._sends = sends
        self._rights_of = rights_of

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.COMMIT_OFFSETS: self._commit,
            RequestCode.SEND_MESSAGES: self._send,
        }

    def _commit(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        entries = commits_from_bytes(request.body)
        rights = self._rights_of(request, channel)
        refusals: list[Refusal] = []
        for index, entry in enumerate(entries):
            header = UpdateConsumerOffsetHeader(
                consumer_group=entry.group,
                topic=entry.topic,
                queue_id=entry.queue_id,
                commit_offset=entry.offset,
                epoch=entry.epoch,
                epoch_life=entry.epoch_life,
                life=entry.life,
            )
            try:
                _check(rights, committing_needs(entry.group, entry.topic))
                self._offsets.commit(header, channel)
            except Exception as error:
                refusals.append(Refusal(index, *_code_and_remark(error)))
        return request.response(body=refusals_to_bytes(refusals))

    def _send(self, request: RemotingCommand, channel: RemotingChannel) -> Answer | LateAnswer:
        entries = sends_from_bytes(request.body)
        rights = self._rights_of(request, channel)
        outcomes: list[SendOutcome | None] = [None] * len(entries)
        left = len(entries)
        late = LateAnswer()

        def ended(index: int, answer: RemotingCommand | Exception | None) -> None:
            nonlocal left
            outcomes[index] = _outcome(answer)
            left -= 1
            if not left:
                there = [each for each in outcomes if each is not None]
                late.give(request.response(body=outcomes_to_bytes(there)))

        for index, entry in enumerate(entries):
            try:
                _check(rights, sending_needs(entry.topic))
                result = self._sends.send(_single(request, entry), channel)
            except Exception as error:
                ended(index, error)
                continue
            if isinstance(result, LateAnswer):
                result.wait(partial(ended, index))
            else:
                ended(index, result if isinstance(result, RemotingCommand) else None)
        return late if entries else request.response()


def _single(request: RemotingCommand, entry: SentEntry) -> RemotingCommand:
    """Return *entry* as a request of its own. Raise BrokerError if it cannot be one of several."""
    if entry.topic.startswith(RETRY_PREFIX):
        raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "send messages to retry topics one by one")
    header = SendMessageHeader(
        producer_group="",
        topic=entry.topic,
        default_topic=_NO_MODEL,
        queue_id=entry.queue_id,
        born_timestamp=entry.born_ms,
        properties=entry.properties.decode(),
    )
    ext = header.to_v2()
    if entry.life is not None:
        ext[LIFE] = str(entry.life)
    return RemotingCommand(
        RequestCode.SEND_MESSAGE_V2, ext=ext, body=entry.body, version=request.version
    )


def _outcome(answer: RemotingCommand | Exception | None) -> SendOutcome:
    if isinstance(answer, RemotingCommand):
        ext = answer.ext
        return SendOutcome(answer.code, int(ext["queueOffset"]), ext["msgId"], answer.remark or "")
    if answer is None:
        return SendOutcome(ResponseCode.SYSTEM_ERROR, remark="the send has no answer")
    code, remark = _code_and_remark(answer)
    return SendOutcome(code, remark=remark)


def _check(rights: CallerRights | None, needs: list[Need]) -> None:
    if rights is not None:
        rights.check(needs)


def _code_and_remark(error: Exception) -> tuple[int, str]:
    if isinstance(error, BrokerError):
        return error.code, _remark(error.remark)
    if not isinstance(error, InvalidCommand | UnicodeDecodeError):
        _log.error("entry of a request failed", exc_info=error)
    return ResponseCode.SYSTEM_ERROR, _remark(str(error) or type(error).__name__)


def _remark(text: str) -> str:
    return printable(text[:_MAX_REMARK_CHARS])[:_MAX_REMARK_CHARS]
