"""Administrative requests: figures (28, 315), settings (26, 25), deletion of old messages (329)."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import orjson

from broker_core.broker.admin.runtime_table import RATE_SPANS_MS, Facts, runtime_table
from broker_core.broker.admin.shown_settings import (
    properties_from_text,
    properties_to_text,
    shown_settings,
)
from broker_core.broker.settings import BrokerSettings
from broker_core.broker.traffic import DAY_MS, HOUR_MS, MINUTE_MS, Traffic
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import Group, Topic
from broker_core.remoting.admin_bodies import Pace, stats_to_json
from broker_core.remoting.admin_headers import BrokerConfigResponse, ConfirmClockHeader, StatsHeader
from broker_core.remoting.bodies import table_to_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.route_bodies import DataVersion
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.reader import StoreReader

_MAX_SHOWN = 200  # characters of a name in an error
_MAX_WHY = 500  # characters of a name and of a reason


class ConfirmClock(Protocol):
    """Confirmation of the wall clock by an administrator."""

    async def __call__(self, *, by: str, reason: str) -> int:
        """Adopt the wall clock; return by how many ms it was ahead. Raise OSError."""


class RuntimeProcessor:
    """Answers from the store, the traffic and the settings.

    *boot_ms*: start of the broker, *locks_since_ms*: of its table of orderly locks, both in ms
    since 1970; *delete_expired* applies the retention, *retention* returns its figures, and
    *confirm_clock* lets messages grow old by the wall clock again; *replica_figures*: figures of
    replicas that elect their master.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        reader: StoreReader,
        traffic: Traffic,
        boot_ms: int,
        locks_since_ms: int,
        retention: Callable[[], Mapping[str, int]],
        confirm_clock: ConfirmClock,
        address: Callable[[], str],
        delete_expired: Callable[[], Awaitable[None]],
        replica_figures: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._traffic = traffic
        self._boot_ms = boot_ms
        self._locks_since_ms = locks_since_ms
        self._retention = retention
        self._adopt_clock = confirm_clock
        self._address = address
        self._delete_expired = delete_expired
        self._replica_figures = replica_figures

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.VIEW_BROKER_STATS_DATA: self._stats,
            RequestCode.GET_BROKER_CONFIG: self._shown,
            RequestCode.UPDATE_BROKER_CONFIG: self._change,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete,
            RequestCode.CONFIRM_CLOCK: self._confirm_clock,
        }

    def _runtime(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        now_ms, put = wall_ms(), self._reader.put_by_topic()
        disk = shutil.disk_usage(self._settings.data)
        facts = Facts(
            boot_ms=self._boot_ms,
            locks_since_ms=self._locks_since_ms,
            retention=self._retention(),
            now_ms=now_ms,
            log_range=self._reader.log_range(),
            earliest_ms=self._reader.earliest_ms(),
            disk_total=disk.total,
            disk_used=disk.used,
            disk_free=disk.free,
            put=self._traffic.put_today(put),
            given=self._traffic.given_today(),
            put_paces=tuple(
                self._traffic.all_put(put, span, now_ms=now_ms) for span in RATE_SPANS_MS
            ),
            given_paces=tuple(
                self._traffic.all_given(span, now_ms=now_ms) for span in RATE_SPANS_MS
            ),
        )
        table = {**runtime_table(facts), **self._replica_figures()}
        if damaged := len(self._reader.damaged):
            table["damagedMessages"] = str(damaged)
        return request.response(body=table_to_json(table))

    def _stats(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = StatsHeader.from_ext(request.ext)
        paces = self._paces(header)
        if paces is None:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return request.response(body=stats_to_json(*paces))

    def _paces(self, header: StatsHeader) -> tuple[Pace, Pace, Pace] | None:
        """Return the rates of a minute, an hour and a day, or None for unsupported figures."""
        now_ms, traffic = wall_ms(), self._traffic
        topic = Topic(header.stats_key)
        if header.stats_name == "TOPIC_PUT_NUMS" and self._reader.has_topic(topic):
            put = self._reader.put_in(topic)

            def pace(span_ms: int) -> Pace:
                return traffic.put_pace(topic, put, span_ms, now_ms=now_ms)
        elif header.stats_name == "GROUP_GET_NUMS":
            name, _, group = header.stats_key.partition("@")
            if not traffic.knows(Group(group), Topic(name)):
                return None

            def pace(span_ms: int) -> Pace:
                return traffic.given_pace(Group(group), Topic(name), span_ms, now_ms=now_ms)
        else:
            return None
        return pace(MINUTE_MS), pace(HOUR_MS), pace(DAY_MS)

    def _shown(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        shown = shown_settings(self._settings, address=self._address())
        version = orjson.dumps(DataVersion(self._boot_ms).to_fields()).decode()
        return request.response(
            ext=BrokerConfigResponse(version=version).to_ext(), body=properties_to_text(shown)
        )

    def _change(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        try:
            wanted = properties_from_text(bytes(request.body))
        except ValueError as error:
            raise InvalidCommand(f"the settings are not text: {error}") from error
        shown = shown_settings(self._settings, address=self._address())
        others = [name for name, value in wanted.items() if shown.get(name) != value]
        if others:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(others)[:_MAX_SHOWN]} cannot be changed while the broker runs:"
                " change its settings file and restart it",
            )
        return request.response()

    async def _confirm_clock(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = ConfirmClockHeader.from_ext(request.ext)
        by, reason = header.by[:_MAX_WHY], header.reason[:_MAX_WHY]
        if not by or not reason or not (by + reason).isprintable():
            raise InvalidCommand(
                "a confirmed clock needs the fields by and reason, as printable text"
            )
        try:
            ahead_ms = await self._adopt_clock(by=by, reason=reason)
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the clock cannot be saved: {error.strerror}"
            ) from error
        return request.response(ext={"aheadMillis": str(ahead_ms)})

    async def _delete(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        try:
            await self._delete_expired()
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"old messages cannot be deleted: {error.strerror}"
            ) from error
        return request.response()
