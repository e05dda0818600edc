"""Requests for configurations of groups: 200, 225 (define), 201, 352 (show), 207 (delete)."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from broker_core.broker.groups.configs import checked
from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.offsets import CommittedOffsets, clients_group
from broker_core.broker.table_saver import Saver
from broker_core.broker.traffic import Traffic
from broker_core.errors import BrokerError
from broker_core.names import Group
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.group_bodies import GroupConfig, group_list_from_json
from broker_core.remoting.headers import DeleteGroupHeader, GroupHeader
from broker_core.remoting_channel import Answer, Handler, RemotingChannel


class GroupProcessor:
    """Confirms changes when they are on disk."""

    def __init__(
        self,
        groups: GroupDirectory,
        *,
        offsets: CommittedOffsets,
        offset_saver: Saver,
        traffic: Traffic,
    ) -> None:
        self._traffic = traffic
        self._groups = groups
        self._offsets = offsets
        self._offset_saver = offset_saver

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._define,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._define_all,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
        }

    async def _define(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        await self._save([GroupConfig.from_json(request.body)])
        return request.response()

    async def _define_all(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        await self._save(group_list_from_json(request.body))
        return request.response()

    def _all(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        return request.response(body=orjson.dumps(self._groups.configs.to_table()))

    def _one(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = GroupHeader.from_ext(request.ext)
        return request.response(body=self._groups.config(Group(header.group)).to_json())

    async def _delete(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = DeleteGroupHeader.from_ext(request.ext)
        group = clients_group(header.group_name)
        try:
            await self._groups.delete(group)
            self._traffic.forget({group})
            if header.clean_offset or header.remove_offset:
                self._offsets.delete(group)
                await self._offset_saver.save()
        except OSError as error:
            raise _unsaved(error) from error
        return request.response()

    async def _save(self, configs: Iterable[GroupConfig]) -> None:
        wanted = [checked(config) for config in configs]
        try:
            await self._groups.define(wanted)
        except OSError as error:
            raise _unsaved(error) from error


def _unsaved(error: OSError) -> BrokerError:
    return BrokerError(
        ResponseCode.SYSTEM_ERROR, f"the table of groups cannot be saved: {error.strerror}"
    )
