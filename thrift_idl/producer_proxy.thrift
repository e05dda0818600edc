/**
 * The proxy's interface for producers without a RocketMQ client.
 *
 * Field ids below 70 and their names are DDMQ's, so that its producers work unmodified; ids from 70
 * on are orderlane's. Same transport, protocols and port as consumer_proxy.thrift.
 *
 * Ids are never reused. After a change run thrift_idl/regenerate.py.
 */
namespace py thrift_idl.gen.producer_proxy
namespace java io.github.orderlane.client.gen.producer
namespace go producer
namespace cpp orderlane.gen.producer

/** One message to store. */
struct Message {
    1: string topic,
    /** The message key, for searches; also the order key of groups that use KEY. */
    2: optional string key,
    /** The body as text, for clients without field 7. */
    3: optional string value,
    /**
     * Chooses the queue when partitionId is -1: the absolute value of its remainder by the number
     * of queues. Java's String.hashCode of the sharding key, sign kept. Absent: by the key, or
     * round robin if that is absent too.
     */
    4: optional i64 hashId,
    /** The tag, for groups that filter; absent: none. */
    5: optional string tags,
    /** The queue's position in the order by broker name, then id; -1: by hashId; -2: any queue. */
    6: i32 partitionId = -1,
    /** The body; takes precedence over field 3. */
    7: optional binary body,
    /** Name and version of the client library; for statistics only. */
    8: optional string version,
    /** The application's properties; UNIQ_KEY sets the message's id. */
    9: optional map<string, string> properties,
    /** Authenticates the client. */
    75: optional string token,
    /**
     * The queue by name, as in broker-a_0; takes precedence over partitionId. Code 11 if the topic
     * has no such queue.
     */
    76: optional string qid
}

/** The result of one message of a batch. */
struct MessageResult {
    /** As in Result; 70: not sent, so as not to overtake an earlier message that was not stored. */
    1: required i32 code,
    /** A readable text; absent with code 0, or if it is the same as the previous message's. */
    2: optional string msg
}

/** The result of a message or a batch. */
struct Result {
    /**
     * 0: stored. 10: unknown error; 11: illegal, empty or too large; 12: not stored in time, outcome
     * unknown; 14: no such topic; 15: too fast; 18, 31: unsupported delays; 20: shutting down;
     * 71: the token is missing or unknown.
     */
    1: i32 code,
    /** A readable text: what was wrong, and what would be right. */
    2: string msg,
    /** The message's key or id. */
    3: optional string key,
    /** For a batch not stored whole: one entry per message, in order. */
    70: optional list<MessageResult> messages
}

/**
 * A delayed message, or its cancellation. Code 31: loops are not supported. 33: the time is missing, or not
 * available because the topic's brokers have only delay levels. 18: the brokers cannot cancel. 30: the
 * message to cancel does not exist, or is no longer waiting.
 */
struct DelayMessage {
    1: string topic,
    /** The id from the delayed message's answer, if action is cancel. */
    2: optional string uniqDelayMsgId,
    3: optional binary body,
    /** The tag; absent: none. */
    4: string tags,
    /** 1: add; 2: cancel. */
    5: i32 action,
    /** Delivery time: seconds since 1970; past times deliver at once. */
    6: optional i64 timestamp,
    /** 2: once; 3: in a loop. */
    7: optional i32 dmsgtype,
    /** Seconds between deliveries of a loop. */
    8: optional i64 interval,
    /** End of a loop: seconds since 1970. */
    9: optional i64 expire,
    /** Number of deliveries of a loop. */
    10: optional i64 times,
    /** Chosen by the client. A repeated request adds a message; the property UNIQ_KEY identifies both. */
    11: optional string uuid,
    /** Name and version of the client library; for statistics only. */
    13: optional string version,
    /** The application's properties. */
    14: optional map<string, string> properties,
    /** Authenticates the client. */
    75: optional string token
}

/** The result of a delayed message. */
struct DelayResult {
    /** 0: success. Others: see msg. */
    1: i32 code,
    /** A readable text: what was wrong, and what would be right. */
    2: string msg,
    /** Identifies the delayed message, for a later cancel. */
    3: string uniqDelayMsgId
}

/** Asks for the queues to which the caller can send. */
struct QueuesRequest {
    1: required string topic,
    /** Authenticates the client. */
    75: optional string token
}

/** The queues to which the caller can send. */
struct WritableQueues {
    /** 0, or why a send would fail, as in Result: 10, 11, 14, 71. */
    1: required i32 code,
    /** A readable text: what was wrong, and what would be right; absent with code 0. */
    2: optional string msg,
    /** By name, as in broker-a_0, in the order of partitionId; absent unless the code is 0. */
    3: optional list<string> qids
}

service ProducerService {
    /** Stores one message; timeout in milliseconds. Code 0: stored. */
    Result sendSync(1: Message message, 2: i64 timeout),
    /**
     * Stores several messages, those for one queue in order. Code 0: all are stored. Otherwise it is
     * the first failure's code, and the messages' results say which are stored.
     */
    Result sendBatchSync(1: list<Message> messages),
    /** As sendSync; the answer is also sent after the message is stored. */
    Result sendAsync(1: Message message),
    /** timeout in milliseconds. */
    DelayResult sendDelaySync(1: DelayMessage delayMessage, 2: i64 timeout),
    /** As with a send, an unknown topic is created where the brokers allow it. */
    WritableQueues writableQueues(1: QueuesRequest request)
}
