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
     * 71: the token is missing or unknown; 72: the transaction ended otherwise, or does not exist.
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

/**
 * Messages of one topic for one queue, encoded by the client as RocketMQ's producers encode a batch.
 * The proxy passes them on as they are.
 */
struct EncodedBatch {
    1: required string topic,
    /** The queue by name, as in broker-a_0; absent: one queue for all, which the proxy chooses. */
    2: optional string qid,
    /** The number of messages in the body. */
    3: required i32 count,
    /**
     * The messages, each as: its size (i32, including this field), twice 0 (i32), 0 (i32, flags), the
     * size of the body (i32), the body, the size of the properties (i16), the properties. All integers
     * are big-endian. Properties are NAME 0x01 VALUE 0x02, repeated, in UTF-8: UNIQ_KEY with the
     * message's id, KEYS with the key and TAGS with the tag if there is one, and the application's.
     */
    4: required binary body,
    /** Milliseconds; absent or 0: 3000. */
    5: optional i64 timeoutMs,
    /** Name and version of the client library; for statistics only. */
    6: optional string version,
    /**
     * Identifies the queues among which qid was selected: the CRC-32 of their names, as returned by
     * writableQueues and joined by commas. Code 11 if the topic has other queues by now, in which a
     * key may have another place. Absent: not compared.
     */
    7: optional i64 route,
    /** Authenticates the client. */
    75: optional string token
}

/** The result of an EncodedBatch. */
struct EncodedResult {
    /** 0: all are stored. Otherwise as in Result: 10, 11, 12, 14, 15, 20, 70, 71. */
    1: required i32 code,
    /** A readable text: what was wrong, and what would be right; absent with code 0. */
    2: optional string msg,
    /** The number of messages from the first one on that are known to be stored; absent: 0. */
    3: optional i32 stored
}

/** Stores a message that consumers see only if its transaction is committed: a half message. */
struct PrepareRequest {
    /** As for sendSync; the field token of the message is not used. */
    1: required Message message,
    /** The producer group, whose members brokers ask about the outcome. */
    2: required string group,
    /** Milliseconds; absent or 0: 3000. */
    3: optional i64 timeoutMs,
    /** Seconds until the broker asks first; absent: as configured there, usually 6. */
    4: optional i32 checkAfterS,
    /** Authenticates the client. */
    75: optional string token
}

/** The result of a half message. */
struct Prepared {
    /**
     * As in Result. After 10 and 12, or without an answer, the half message may be stored: do not
     * repeat the request, and roll back when asked. After 15, 20 and 70 it is not stored.
     */
    1: required i32 code,
    /** A readable text: what was wrong, and what would be right; absent with code 0. */
    2: optional string msg,
    /** Ends the transaction, through any proxy; opaque. Absent unless the code is 0. */
    3: optional string transaction
}

/** Ends a transaction. May be repeated. */
struct EndRequest {
    /** From Prepared or TransactionCheck. */
    1: required string transaction,
    /** 1: commit; 2: roll back. */
    2: required i32 outcome,
    /** Milliseconds; absent or 0: 3000. */
    3: optional i64 timeoutMs,
    /** Authenticates the client. */
    75: optional string token
}

/** Waits for questions of brokers about open transactions of a producer group. */
struct ChecksRequest {
    1: required string group,
    /** The topics whose transactions the client knows; at least one. */
    2: required list<string> topics,
    /** Milliseconds to wait for the first question; at most 30000. Absent: 1000. */
    3: optional i32 maxWaitMs,
    /** Authenticates the client. */
    75: optional string token
}

/**
 * A broker's question about an open transaction. A client that does not know the outcome yet does
 * not answer: the broker asks again, up to its limit.
 */
struct TransactionCheck {
    /** For endTransaction. */
    1: required string transaction,
    /** The half message, with its topic, key, tags, body and properties. */
    2: required Message message,
    /** The id that consumers would see. */
    3: required string messageId,
    /** Milliseconds since 1970. */
    4: optional i64 bornAtMs
}

/** The questions that arrived. */
struct ChecksAnswer {
    /** 0, or as in Result: 11, 15, 20, 71. */
    1: required i32 code,
    /** A readable text: what was wrong, and what would be right; absent with code 0. */
    2: optional string msg,
    /** Empty if none arrived in time; absent unless the code is 0. */
    3: optional list<TransactionCheck> checks
}

service ProducerService {
    /** Stores one message; timeout in milliseconds. Code 0: stored. */
    Result sendSync(1: Message message, 2: i64 timeout),
    /**
     * Stores several messages, those for one queue in order. Code 0: all are stored. Otherwise it is
     * the code of the first message that may be stored but is not known to be, or without one the
     * first failure's, and the messages' results say which are stored.
     */
    Result sendBatchSync(1: list<Message> messages),
    /**
     * Stores messages of one queue in order. Nothing is stored if one of them is illegal (code 11),
     * or if the topic has no such queue, or other queues than those of the route (code 11). After
     * code 12 or 10, messages that are not known to be stored may be.
     */
    EncodedResult sendEncoded(1: EncodedBatch batch),
    /** As sendSync; the answer is also sent after the message is stored. */
    Result sendAsync(1: Message message),
    /** timeout in milliseconds. */
    DelayResult sendDelaySync(1: DelayMessage delayMessage, 2: i64 timeout),
    /** As with a send, an unknown topic is created where the brokers allow it. */
    WritableQueues writableQueues(1: QueuesRequest request),
    /** Stores a half message. The proxy sends it to its broker once, never again. */
    Prepared prepareTransaction(1: PrepareRequest request),
    /** Code 0: the outcome is stored, and the message of a commit is visible. */
    Result endTransaction(1: EndRequest request),
    /**
     * While clients of a group wait here, or did within the last minute on a connection that is
     * still open, brokers may ask this proxy about the group's transactions. A connection is a
     * member of one group at a time.
     */
    ChecksAnswer transactionChecks(1: ChecksRequest request)
}
