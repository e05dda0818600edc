"""The requests that a slave serves: reads, and requests that clients need for reading. Pure.

A slave changes nothing by itself: sends, creations, deletions and decisions go to the master.
"""

from __future__ import annotations

from broker_core.remoting.codes import RequestCode

#: What an elected master serves before it has its lease, or after it has lost it.
SERVED_WITHOUT_LEASE = frozenset(
    {
        RequestCode.JOIN_MASTER,
        RequestCode.FETCH_LOG,
        RequestCode.FETCH_TABLES,
        RequestCode.LOCK_BATCH_MQ,  # a vote for another master
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_CONFIG,
    }
)
#: An elected master refuses them while too few replicas are connected, before it stores anything:
#: otherwise each attempt of a producer would be stored, and all would become visible later.
STORES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_MESSAGES,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
    }
)
#: An elected master answers them once enough replicas have the changed table, as it does commits
#: that ask for the disk.
CHANGES_OF_TABLES = frozenset(
    {
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)
#: Replicas still exchange them with a broker that stops, and so confirm what it has stored.
BETWEEN_REPLICAS = frozenset(
    {
        RequestCode.FETCH_LOG,
        RequestCode.FETCH_TABLES,
        RequestCode.REQUEST_VOTE,
        RequestCode.MASTER_BEAT,
    }
)
#: The others are refused.
SERVED_BY_SLAVES = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.READ_QUEUES,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,  # while the master is unreachable
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.READ_RANGES,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.LOCK_BATCH_MQ,  # a vote, in strict mode
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_MESSAGE,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.GET_ALL_PRODUCER_INFO,
    }
)
