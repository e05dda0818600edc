"""All operations of the admin API besides health, metrics and group states."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.names import Group
from proxy.admin.audit import AuditSurface
from proxy.admin.configuration import ConfigurationSurface
from proxy.admin.dead_letters import DeadLetterSurface
from proxy.admin.group_resets import GroupResetSurface
from proxy.admin.groups import GroupSurface
from proxy.admin.handoffs import HandoffSurface
from proxy.admin.key_views import KeyViewSurface
from proxy.admin.keys import GroupVerbSurface, KeySurface
from proxy.admin.leases import LeaseSurface
from proxy.admin.message_sends import MessageSendSurface
from proxy.admin.messages import MessageSurface
from proxy.admin.offsets import OffsetSurface
from proxy.admin.operations import Operation
from proxy.admin.order_keys import OrderKeySurface
from proxy.admin.owners import OwnerSurface
from proxy.admin.process import ProcessSurface
from proxy.admin.topic_messages import TopicMessageSurface
from proxy.admin.topics import TopicSurface
from proxy.lane.lanes import Lanes
from proxy.live.configuration import Configuration
from proxy.operator.broker_desk import BrokerDesk
from proxy.operator.dead_letter_desk import DeadLetterDesk
from proxy.operator.group_reset import GroupReset
from proxy.operator.hand_over_desk import HandoffDesk
from proxy.operator.key_board import KeyBoard
from proxy.operator.key_desk import KeyDesk
from proxy.operator.lease_desk import LeaseDesk
from proxy.operator.message_browser import MessageBrowser
from proxy.operator.message_desk import MessageDesk
from proxy.operator.message_sender import MessageSender
from proxy.operator.message_states import MessageStates
from proxy.operator.offset_desk import OffsetDesk
from proxy.operator.order_key_desk import OrderKeyDesk
from proxy.operator.owner_desk import Doors, OwnerDesk
from proxy.operator.readers import Readers
from proxy.operator.topic_desk import TopicDesk
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.owner_book import OwnerBook


def desk_operations(
    context: UpstreamContext,
    lanes: Lanes,
    ownerships: Mapping[Group, GroupOwnership],
    configuration: Configuration,
    dead_letters: DeadLetterDesk,
    doors: Doors,
) -> list[Operation]:
    """Return the operations of one proxy's desks."""
    book = OwnerBook(context.client, context.log)
    readers = Readers()
    states = MessageStates(context, lanes, ownerships, book)
    offsets = OffsetDesk(context, lanes, ownerships, book)
    return [
        *ConfigurationSurface(configuration).operations(),
        *GroupSurface(configuration.desk).operations(),
        *KeySurface(KeyDesk(context, ownerships, book)).operations(),
        *OrderKeySurface(OrderKeyDesk(context, lanes)).operations(),
        *GroupVerbSurface(KeyDesk(context, ownerships, book)).operations(),
        *KeyViewSurface(KeyBoard(context, ownerships, book)).operations(),
        *AuditSurface(context.audit).operations(),
        *DeadLetterSurface(dead_letters).operations(),
        *LeaseSurface(LeaseDesk(context, lanes, book)).operations(),
        *MessageSurface(MessageDesk(context, lanes)).operations(),
        *OffsetSurface(offsets).operations(),
        *GroupResetSurface(GroupReset(offsets, lanes, book)).operations(),
        *ProcessSurface(context).operations(),
        *OwnerSurface(OwnerDesk(context, lanes, ownerships, book, doors)).operations(),
        *TopicSurface(TopicDesk(context, readers), BrokerDesk(context)).operations(),
        *TopicMessageSurface(MessageBrowser(context, readers), states).operations(),
        *MessageSendSurface(MessageSender(context)).operations(),
        *HandoffSurface(HandoffDesk(context, lanes, ownerships, book)).operations(),
    ]
