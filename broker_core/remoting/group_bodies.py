"""JSON bodies with a broker's configuration of consumer groups. Pure.

Source: ``org.apache.rocketmq.common.subscription`` (4.9.7), ``remoting.protocol.subscription`` and
``remoting.protocol.body.SubscriptionGroupList`` (5.3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from broker_core.errors import InvalidCommand
from broker_core.names import Group, check_name
from broker_core.remoting.json_fields import MAX_REQUEST_ELEMENTS, JsonObject
from broker_core.remoting.route_bodies import DataVersion

#: Number of groups in one request that defines groups.
MAX_GROUPS_BYTES = 4 * 1024 * 1024

#: Fields that this project does not use. They are kept unchanged for other programs.
_KEPT_FIELDS = (
    "consumeMessageOrderly",
    "groupRetryPolicy",
    "groupSysFlag",
    "consumeTimeoutMinute",
    "subscriptionDataSet",
    "attributes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """A broker's configuration of a consumer group; the defaults are RocketMQ's.

    ``retry_max_times``: number of retries after which a message becomes a dead letter. The broker
    ids are those to pull from, usually and while the group is far behind.
    """

    group: Group
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    #: Other fields of the configuration (5.x).
    others: Mapping[str, Any] = field(default_factory=dict)

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON object, also for the broker's file."""
        return {
            "groupName": self.group,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "retryQueueNums": self.retry_queue_nums,
            "retryMaxTimes": self.retry_max_times,
            "brokerId": self.broker_id,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            **self.others,
        }

    @classmethod
    def from_fields(cls, fields: JsonObject, *, group: str | None = None) -> GroupConfig:
        """Read the JSON object; *group* replaces a missing name. Raise InvalidCommand."""
        name = fields.text("groupName") if group is None else fields.text("groupName", group)
        try:
            checked = Group(check_name("group", name))
        except ValueError as error:
            raise InvalidCommand(str(error)) from error
        kept = {name: fields.all().get(name) for name in _KEPT_FIELDS}
        return cls(
            group=checked,
            consume_enable=fields.boolean("consumeEnable", True),
            consume_from_min_enable=fields.boolean("consumeFromMinEnable", True),
            consume_broadcast_enable=fields.boolean("consumeBroadcastEnable", True),
            retry_queue_nums=fields.count("retryQueueNums", 1),
            retry_max_times=fields.integer("retryMaxTimes", 16),
            broker_id=fields.integer("brokerId", 0),
            which_broker_when_consume_slowly=fields.integer("whichBrokerWhenConsumeSlowly", 1),
            notify_consumer_ids_changed_enable=fields.boolean(
                "notifyConsumerIdsChangedEnable", True
            ),
            others={name: value for name, value in kept.items() if value is not None},
        )

    def to_json(self) -> bytes:
        """Return the body of 200, which also answers 352."""
        return orjson.dumps(self.to_fields())

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> GroupConfig:
        """Read the body of 200. Raise InvalidCommand."""
        return cls.from_fields(
            JsonObject.parse(
                data, "group", max_bytes=MAX_GROUPS_BYTES, max_elements=MAX_REQUEST_ELEMENTS
            )
        )


def group_list_to_json(configs: Iterable[GroupConfig]) -> bytes:
    """Return the body of 225."""
    return orjson.dumps({"groupConfigList": [config.to_fields() for config in configs]})


def group_list_from_json(data: bytes | memoryview) -> list[GroupConfig]:
    """Read the body of 225. Raise InvalidCommand."""
    fields = JsonObject.parse(
        data, "groups", max_bytes=MAX_GROUPS_BYTES, max_elements=MAX_REQUEST_ELEMENTS
    )
    return [GroupConfig.from_fields(each) for each in fields.objects("groupConfigList")]


def groups_to_fields(configs: Iterable[GroupConfig], version: DataVersion) -> dict[str, Any]:
    """Return all groups of a broker, for its file and as the answer to 201."""
    return {
        "subscriptionGroupTable": {config.group: config.to_fields() for config in configs},
        "forbiddenTable": {},
        "dataVersion": version.to_fields(),
    }


def groups_from_fields(fields: JsonObject) -> tuple[list[GroupConfig], DataVersion]:
    """Inverse of ``groups_to_fields``. Raise InvalidCommand."""
    configs = [
        GroupConfig.from_fields(JsonObject(value, f"group {name}"), group=name)
        for name, value in fields.items("subscriptionGroupTable").items()
    ]
    return configs, DataVersion.from_fields(JsonObject(fields.items("dataVersion"), "dataVersion"))
