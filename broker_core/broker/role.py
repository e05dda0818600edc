"""What a slave serves: what reads, and what clients need to read. Pure.

A slave changes nothing by itself: whatever is sent, created, deleted or decided goes to the master.
"""

from __future__ import annotations

from broker_core.remoting.codes import RequestCode

#: The others are refused. Codes of administration that only read stand here by their numbers.
SERVED_BY_SLAVES = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,  # while the master is away
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
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
        12,  # QUERY_MESSAGE
        22,  # GET_TOPIC_CONFIG_LIST
        23,  # GET_TOPIC_NAME_LIST
        26,  # GET_BROKER_CONFIG
        32,  # GET_EARLIEST_MSG_STORETIME
        33,  # VIEW_MESSAGE_BY_ID
        45,  # GET_ALL_DELAY_OFFSET
        46,  # CHECK_CLIENT_CONFIG
        202,  # GET_TOPIC_STATS_INFO
        203,  # GET_CONSUMER_CONNECTION_LIST
        204,  # GET_PRODUCER_CONNECTION_LIST
        208,  # GET_CONSUME_STATS
        300,  # QUERY_TOPIC_CONSUME_BY_WHO
        303,  # QUERY_CONSUME_TIME_SPAN
        305,  # GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        307,  # GET_CONSUMER_RUNNING_INFO
        343,  # QUERY_TOPICS_BY_CONSUMER
        345,  # QUERY_SUBSCRIPTION_BY_CONSUMER
        351,  # GET_TOPIC_CONFIG
    }
)
