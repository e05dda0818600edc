"""Settings of the consumer groups: the part that may change while a proxy runs.

The docstring below a field is what ``docs/settings.md`` shows.
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
        raise ValueError(f"should be {allowed()}; this is no {kind}: {error.reason}") from None
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
        Field(description=f"What keeps its order: {described()}, or null: no order."),
    ] = None
    missing_key: Literal["by_queue", "unordered", "dead_letter"] = "by_queue"
    """What happens to a message without its order key. by_queue: all such messages of a queue stay
    in order among themselves, which is the safe choice."""
    order_key_version: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    """Raise it to go back to an order key that the topic had before: without that, settings with
    such a key count as older ones, and a proxy that has them takes over no queue."""
    tags: Annotated[str, Field(min_length=1)] = "*"
    """Tags wanted, such as "paid || refunded"; * wants all. The broker passes over the others."""
    visibility_timeout_s: Seconds = 5.0
    """Seconds of a lease: after so long without an ack a message is handed out again. Clients
    extend it as they work, so it may be short; it also bounds the wait after a client's crash."""
    retry_intervals_ms: Annotated[tuple[Milliseconds, ...], AfterValidator(some)] = (
        100,
        150,
        300,
        1_000,
        5_000,
        30_000,
    )
    """Milliseconds between a nack and the next hand-out: after the first, the second, …; the last
    repeats. Short at first, since most failures pass at once; the key waits meanwhile."""
    max_deliveries: Count = 16
    """Hand-outs of one message until on_exhausted applies; those given back unhandled are not
    counted."""
    on_exhausted: Literal["park", "dead_letter", "block"] = "park"
    """What follows the last hand-out, or a reject. park: the message goes to the parked topic, and
    all later ones of its key behind it, in order, until the key is redriven; one without an order
    key goes to %DLQ%group, since it has nothing to wait behind. dead_letter: the message goes to
    %DLQ%group and its key goes on, which gives up the key's order. block: it is retried for ever
    and its key waits."""
    max_pull_batch: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 256
    """Messages in one answer, where the client asks for no fewer."""
    max_jobs_in_memory: Count = 20_000
    """Unfinished messages held of one queue. Half of them are read ahead for whoever comes; past
    that a queue is read on only while clients wait for something that they can have."""
    max_jobs_per_key_in_memory: Count = 64
    """Unfinished messages held of one key once a queue is read past half of its limit. Of the rest
    of a chain only the places are kept, and the messages are read again when their turn comes.
    While few keys have so long chains it is up to 512, a quarter of max_jobs_in_memory and of the
    memory that is left for all of them together; where many have, half of max_jobs_in_memory is
    shared by all of them."""
    retention_margin_s: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] = 21_600.0
    """Seconds: a key that fails, and whose first message is so near to the oldest one that the
    broker keeps, is parked before retention deletes it; under on_exhausted: block the log and
    orderlane_near_retention_total say so each minute. At most a quarter of what is kept."""
    max_rate: Rate | None = None
    """Messages a second of this topic to this group, over all proxies together: each hands out
    the part of its queues, repeats included. Bursts hold a second's worth at most, or a message at
    each proxy; null: no limit."""
    pressure_traffic: Literal["drop", "pass"] = "drop"
    """What becomes of shadow traffic: messages with the property isPressureTraffic=true, which load
    tests of DDMQ's users send. drop: they end here, as those with a tag that is not wanted. pass:
    clients get them."""
    actions: Annotated[
        tuple[ActionSettings, ...], Field(max_length=16), AfterValidator(delivers_last)
    ] = ()
    """What is done to a message before it is handed out, in order: filters and transforms, and at
    the end what delivers it, if the proxy does that itself ([actions](actions.md))."""

    @property
    def delivery(self) -> DeliverySettings | None:
        """How the proxy delivers the topic itself; None: thin clients pull it."""
        return self.actions[-1].delivery if self.actions else None


class GroupSettings(SettingsGroup):
    """One consumer group: clients that share one committed position."""

    name: GroupName
    """The group: at most 122 characters, since %DLQ% stands before it in the topic of its dead
    letters; none that begins with %."""
    start_from: Annotated[
        Literal["earliest", "latest"] | AwareDatetime, BeforeValidator(_start)
    ] = "earliest"
    """Where a group without a committed position begins in the queues that it finds: earliest,
    latest or a time with its zone, such as 2026-01-31T12:00:00Z. Earliest loses nothing. Queues
    added later are always read from their first message."""
    mode: Literal["clustering", "broadcast"] = "clustering"
    """clustering: each message goes to one client of the group. broadcast: each goes to all of
    them; each clientId is a group of its own, `billing%clientId`, which goes on where it was, and
    a pull without one is refused ([broadcast groups](operating.md#broadcast-groups))."""
    forget_after_s: ForgetAfter | None = 604_800.0
    """Seconds: what brokers keep of a client of a broadcast group that pulled nowhere for so long
    is deleted, and it begins at start_from if it comes back; null: never."""
    max_leased_jobs: Count = 4_096
    """Messages in the hands of this group's clients, over all its topics, at one proxy."""
    max_rate: Rate | None = None
    """Messages a second over all topics of this group and all proxies together, as for one topic;
    null: no limit."""
    topics: Annotated[tuple[TopicSettings, ...], AfterValidator(some), AfterValidator(named_once)]
    """The topics that the group consumes."""

    @model_validator(mode="after")
    def _broadcastable(self) -> Self:
        if self.mode != "broadcast":
            return self
        if len(self.name) > MAX_BROADCAST_CHARS:
            raise ValueError(
                "the name of a broadcast group should have at most"
                f" {MAX_BROADCAST_CHARS} characters: those of its clients stand behind it"
            )
        if delivered := [topic.name for topic in self.topics if topic.delivery is not None]:
            raise ValueError(
                f"the proxy delivers topic {delivered[0]} itself, so there is nobody to broadcast"
                " it to: should be mode: clustering, or without that action"
            )
        return self

    @property
    def delivers(self) -> bool:
        """True if the proxy delivers some of its topics itself."""
        for topic in self.topics:  # noqa: SIM110  # asked at each pull: any() takes twice as long
            if topic.delivery is not None:
                return True
        return False

    def topic(self, name: str) -> TopicSettings | None:
        """Settings of the topic *name*, None if the group does not consume it."""
        return next((topic for topic in self.topics if topic.name == name), None)

    @property
    def start_ms(self) -> int | None:
        """``start_from`` in milliseconds since 1970 if it is a time, else None."""
        at = self.start_from
        return int(at.timestamp() * 1000) if isinstance(at, datetime) else None
