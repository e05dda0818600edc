"""Settings of the consumer groups, which may change while a proxy runs.

Field docstrings are shown in ``docs/settings.md``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, model_validator

from proxy.core.broadcast.member_group import MAX_BROADCAST_CHARS
from proxy.core.keys.kinds.registry import BadOrderKey, allowed, compile_order_key, described
from proxy.settings.actions import ActionSettings, delivers_last
from proxy.settings.delivery import DeliverySettings
from proxy.settings.types import (
    Count,
    ForgetAfter,
    GroupName,
    Milliseconds,
    Rate,
    Seconds,
    SettingsGroup,
    TopicName,
    named_once,
    some,
)


def _order_key(value: str) -> str:
    try:
        compile_order_key(value)
    except BadOrderKey as error:
        kind = error.kind.name.removeprefix("a ")
        raise ValueError(
            f"should be {allowed()}; this is not a valid {kind}: {error.reason}"
        ) from None
    except ValueError:
        raise ValueError(f"should be {allowed()}") from None
    return value


def _start(value: object) -> object:
    if value in ("earliest", "latest"):
        return value
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        at = None
    if isinstance(at, datetime) and at.tzinfo is not None:
        return at
    raise ValueError(
        "should be earliest, latest or a time with its zone, such as 2026-01-31T12:00:00Z"
    )


class TopicSettings(SettingsGroup):
    """How one group consumes one topic."""

    name: TopicName
    """The topic."""
    order_key: Annotated[
        Annotated[str, AfterValidator(_order_key)] | None,
        Field(description=f"Messages that keep their order: {described()}, or null: no order."),
    ] = None
    missing_key: Literal["by_queue", "unordered", "dead_letter"] = "by_queue"
    """Handling of messages without an order key. by_queue: all such messages of a queue keep their
    order, the safe choice. unordered: they have no order. dead_letter: they go to %DLQ%group."""
    order_key_version: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    """Raise it to return to an order key that the topic had before. Otherwise settings with that
    key count as older, and a proxy that has them takes over no queue."""
    tags: Annotated[str, Field(min_length=1)] = "*"
    """Wanted tags, such as "paid || refunded"; * wants all. The broker leaves out the others."""
    visibility_timeout_s: Seconds = 5.0
    """Duration of a lease in seconds: a message without an ack by then is delivered again. Clients
    extend leases while they work, so it may be short; it also bounds the wait after a client
    crash."""
    retry_intervals_ms: Annotated[tuple[Milliseconds, ...], AfterValidator(some)] = (
        100,
        150,
        300,
        1_000,
        5_000,
        30_000,
    )
    """Milliseconds between a nack and the next delivery: after the first nack, the second, …; the
    last value repeats. Short at first, because most failures pass quickly and the key waits."""
    max_deliveries: Count = 16
    """Deliveries of one message until on_exhausted applies; messages given back unhandled are not
    counted."""
    on_exhausted: Literal["park", "dead_letter", "block"] = "park"
    """Policy after the last delivery or a reject. park: the message goes to the parked topic, and
    all later ones of its key follow in order, until the key is redriven; a message without an order
    key goes to %DLQ%group instead. dead_letter: the message goes to %DLQ%group and its key
    continues, which gives up the key's order. block: the message is retried for ever and its key
    waits."""
    max_pull_batch: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 256
    """Maximum messages of one queue in one answer; a client may ask for fewer."""
    max_jobs_in_memory: Count = 20_000
    """Maximum unfinished messages of one queue in memory. Half of them are read ahead; beyond that,
    the queue is read only while clients wait for messages that it can provide."""
    max_jobs_per_key_in_memory: Count = 64
    """Unfinished messages of one key in memory once a queue is read past half of
    max_jobs_in_memory. The rest of a chain is kept as offsets, and read again when its turn comes.
    If few keys have long chains, each may keep up to 512 messages while all such chains together
    take at most a quarter of max_jobs_in_memory and of the free memory; if many have, they share
    half of max_jobs_in_memory."""
    retention_margin_s: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] = 21_600.0
    """Distance in seconds from the oldest message that the broker keeps: a failing key whose first
    message comes closer is parked before retention deletes it. With on_exhausted: block, the log
    and orderlane_near_retention_total report it each minute instead. At most a quarter of the
    retained period."""
    max_rate: Rate | None = None
    """Maximum messages a second of this topic to this group, over all proxies together, repeats
    included: each proxy delivers the share of its queues. Bursts are at most one second's worth, or
    one message at each proxy; null: no limit."""
    pressure_traffic: Literal["drop", "pass"] = "drop"
    """Handling of shadow traffic, which are messages with the property isPressureTraffic=true from
    load tests of DDMQ's users. drop: they are finished, as with an unwanted tag. pass: clients get
    them."""
    actions: Annotated[
        tuple[ActionSettings, ...], Field(max_length=16), AfterValidator(delivers_last)
    ] = ()
    """Actions on a message before its delivery, in order: filters, transforms, and as the last one
    an action that delivers it, if the proxy does so itself ([actions](actions.md))."""

    @property
    def delivery(self) -> DeliverySettings | None:
        """How the proxy delivers the topic itself; None: thin clients pull it."""
        return self.actions[-1].delivery if self.actions else None


class GroupSettings(SettingsGroup):
    """One consumer group: clients that share one committed offset."""

    name: GroupName
    """Name of the group: at most 122 characters, because %DLQ% and the name form the dead-letter
    topic; not beginning with %."""
    start_from: Annotated[
        Literal["earliest", "latest"] | AwareDatetime, BeforeValidator(_start)
    ] = "earliest"
    """Where a group without a committed offset begins in existing queues: earliest, latest or a
    time with its zone, such as 2026-01-31T12:00:00Z. earliest loses nothing. Queues added later are
    always read from their first message, as is a topic created while the group waited for it. A
    topic that it did not find because brokers were away is read, with latest, from five minutes
    before that on: the clocks of proxy and brokers may differ so much."""
    mode: Literal["clustering", "broadcast"] = "clustering"
    """clustering: each message goes to one client of the group. broadcast: each message goes to all
    clients; each clientId is a group of its own, `billing%clientId`, which continues where it was,
    and pulls without a clientId are refused ([broadcast groups](operating.md#broadcast-groups))."""
    forget_after_s: ForgetAfter | None = 604_800.0
    """Seconds without a pull after which brokers' data about a client of a broadcast group is
    deleted; if the client returns, it begins at start_from. null: never."""
    max_clients: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Maximum clients of a broadcast group that brokers keep data about. With more, those absent
    longest are forgotten before forget_after_s, unless that is null; if too many are left, a new
    clientId is refused."""
    max_leased_jobs: Count = 4_096
    """Maximum messages leased to this group's clients, over all its topics, for each proxy."""
    max_rate: Rate | None = None
    """Maximum messages a second over all topics of this group and all proxies together, as for one
    topic; null: no limit."""
    hand_out: Literal["oldest", "longest_chain"] = "oldest"
    """Which of several ready messages goes first. oldest: the one that has been ready for longest,
    with priority for keys whose last message has just finished. longest_chain: the one whose key
    has most unfinished messages among those that the proxy has read, so that a backlog ends sooner
    if keys differ in size. With either, each ready key is served after a bounded number of
    others."""
    topics: Annotated[tuple[TopicSettings, ...], AfterValidator(some), AfterValidator(named_once)]
    """Topics that the group consumes."""

    @model_validator(mode="after")
    def _broadcastable(self) -> Self:
        if self.mode != "broadcast":
            return self
        if len(self.name) > MAX_BROADCAST_CHARS:
            raise ValueError(
                "the name of a broadcast group should have at most"
                f" {MAX_BROADCAST_CHARS} characters: client ids are appended to it"
            )
        if delivered := [topic.name for topic in self.topics if topic.delivery is not None]:
            raise ValueError(
                f"the proxy delivers topic {delivered[0]} itself, so no client can"
                " receive broadcasts: should be mode: clustering, or without that action"
            )
        return self

    @property
    def delivers(self) -> bool:
        """Whether the proxy delivers any of its topics itself."""
        for topic in self.topics:  # noqa: SIM110  # asked at each pull: any() takes twice as long
            if topic.delivery is not None:
                return True
        return False

    def topic(self, name: str) -> TopicSettings | None:
        """Return the settings of the topic *name*; None if the group does not consume it."""
        return next((topic for topic in self.topics if topic.name == name), None)

    @property
    def start_ms(self) -> int | None:
        """``start_from`` in ms since 1970 if it is a time, else None."""
        at = self.start_from
        return int(at.timestamp() * 1000) if isinstance(at, datetime) else None
