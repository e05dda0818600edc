"""Request and response codes that orderlane serves, sends or recognises."""

from __future__ import annotations

from enum import IntEnum


class RequestCode(IntEnum):
    """The kind of a request."""

    SEND_MESSAGE = 10  # long header names; clients use 310
    PULL_MESSAGE = 11  # may be held until messages arrive
    QUERY_MESSAGE = 12  # by key
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15  # Java sends it one-way, orderlane awaits the answer
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28  # a KV table that contains bootTimestamp
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30  # the next offset that will be written
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33  # by the position in the log that is part of an offset message id
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    END_TRANSACTION = 37  # Java sends it one-way, orderlane awaits the answer
    CONSUMER_SEND_MSG_BACK = 36
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39  # broker to producer, one-way
    NOTIFY_CONSUMER_IDS_CHANGED = 40  # broker to client, one-way
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43  # the whole table
    CHECK_CLIENT_CONFIG = 46  # validates a filter, before the first heartbeat
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220  # broker to client, one-way
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    GET_CONSUMER_RUNNING_INFO = 307
    SEND_MESSAGE_V2 = 310  # as 10, with one-letter header names
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    GET_BROKER_CONSUME_STATS = 317
    SEND_BATCH_MESSAGE = 320  # header as 310, body of several messages
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322  # a broker asks whether it must register again
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361  # as 11, from lite pull consumers
    RECALL_MESSAGE = 370  # 5.3: cancels a delayed message
    JOIN_MASTER = 7101  # an extension, as the next two: a slave asks its master
    FETCH_LOG = 7102
    FETCH_TABLES = 7103
    REQUEST_VOTE = 7104  # of a candidate among replicas that elect their master
    MASTER_BEAT = 7105  # the elected master's sign of life
    RENEW_LOCKS = 7106  # an extension: a client renews the locks of all its groups
    CONFIRM_CLOCK = 7110  # an extension: messages grow old by the broker's wall clock again
    READ_QUEUES = 7111  # an extension: one read of all queues of a client; may be held
    COMMIT_OFFSETS = 7112  # an extension: commits of many queues, each as of 15
    SEND_MESSAGES = 7113  # an extension: messages for many queues, each as of 310
    READ_RANGES = 7114  # an extension: the offsets of many queues of a topic


class ResponseCode(IntEnum):
    """The outcome of a request."""

    SUCCESS = 0
    SYSTEM_ERROR = 1  # also: a header field is missing or invalid
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10  # of a send: stored, not yet on disk
    SLAVE_NOT_AVAILABLE = 11  # of a send: stored, not replicated
    FLUSH_SLAVE_TIMEOUT = 12  # of a send: stored, perhaps not replicated
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14  # read-only now: disk full, shutting down
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19  # nothing at that offset yet
    PULL_RETRY_IMMEDIATELY = 20  # messages exist, none matched the filter
    PULL_OFFSET_MOVED = 21  # offset outside of the stored range
    QUERY_NOT_FOUND = 22  # no such offset, key or value
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207  # a client did not answer the broker
    MESSAGE_DAMAGED = 3901  # ours: the message at the offset of a pull is damaged on disk
    NO_SUCH_SESSION = 3902  # ours: the client has to begin its read session again
    NOT_IN_SESSION = 3903  # ours, in a part: the session does not have this queue
    ILLEGAL_OPERATION = 604  # 5.x: of a recall, not recallable


def request_name(code: int) -> str:
    """Return the name of a request code for logs and errors: ``PULL_MESSAGE`` or ``request
    4711``.
    """
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"
