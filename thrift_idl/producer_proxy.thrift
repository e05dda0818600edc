/**
 * What producers without a RocketMQ client ask of the proxy.
 *
 * Field ids below 70 and all names beside them are DDMQ's, so that its producers work unmodified;
 * ids from 70 on are orderlane's own. Same transport, protocols and port as consumer_proxy.thrift.
 *
 * Ids are never reused. After a change run thrift_idl/regenerate.py.
 */
namespace py thrift_idl.gen.producer_proxy
namespace java orderlane.client.gen.producer
namespace go producer
namespace cpp orderlane.gen.producer

/** One message to be stored. */
struct Message {
    1: string topic,
    /** The message key, by which it can be found again; also the order key of groups that use KEY. */
    2: optional string key,
    /** The body as text, for clients that have no field 7. */
    3: optional string value,
    /**
     * Chooses the queue when partitionId is -1: the absolute value of its remainder by the number
     * of queues. Java's String.hashCode of the sharding key, sign kept. Absent: by the key, or
     * round robin if that is absent too.
     */
    4: optional i64 hashId,
    /** The tag, by which groups may filter; absent: none. */
    5: optional string tags,
    /** The queue's place in the order by broker name, then id; -1: by hashId; -2: any queue. */
    6: i32 partitionId = -1,
    /** The body; before field 3 if both are there. */
    7: optional binary body,
    /** Name and version of the client library; for statistics only. */
    8: optional string version,
    /** The application's properties; UNIQ_KEY among them makes the id of the message. */
    9: optional map<string, string> properties,
    /** Who is asking. */
    75: optional string token
}

/** What became of one message of a batch. */
struct MessageResult {
    /** As in Result; 70: not sent, so that it does not overtake an earlier one that was not stored. */
    1: required i32 code,
    /** For people; absent with code 0, and where it is the same as the message's before. */
    2: optional string msg
}

/** What became of a message, or of a batch. */
struct Result {
    /**
     * 0: stored. 10: unknown error; 11: illegal, empty or too large; 12: not stored in time, outcome
     * unknown; 14: no such topic; 15: too fast; 18, 31: delays that are not served; 20: shutting down;
     * 71: the token is missing or unknown.
     */
    1: i32 code,
    /** For people: what was wrong, and what would be right. */
    2: string msg,
    /** The message's key, or what names it. */
    3: optional string key,
    /** Of a batch that was not stored whole: one for each message, in their order. */
    70: optional list<MessageResult> messages
}

/**
 * A message for later, or its cancellation. Code 31: a loop, which is not served. 33: no time, or one that
 * the topic's brokers cannot keep, since they know levels alone. 18: they cannot cancel. 30: the message to
 * cancel is none, or does not wait any more.
 */
struct DelayMessage {
    1: string topic,
    /** What the delayed message was answered with, when action is cancel. */
    2: optional string uniqDelayMsgId,
    3: optional binary body,
    /** The tag; absent: none. */
    4: string tags,
    /** 1: add; 2: cancel. */
    5: i32 action,
    /** When to deliver: seconds since 1970; what is past comes at once. */
    6: optional i64 timestamp,
    /** 2: once; 3: in a loop. */
    7: optional i32 dmsgtype,
    /** Seconds between the deliveries of a loop. */
    8: optional i64 interval,
    /** When a loop ends: seconds since 1970. */
    9: optional i64 expire,
    /** How often a loop delivers. */
    10: optional i64 times,
    /** Chosen by the client. A repeated request adds a message; UNIQ_KEY among the properties names both. */
    11: optional string uuid,
    /** Name and version of the client library; for statistics only. */
    13: optional string version,
    /** The application's properties. */
    14: optional map<string, string> properties,
    /** Who is asking. */
    75: optional string token
}

/** What became of a delayed message. */
struct DelayResult {
    /** 0: done. Anything else: see msg. */
    1: i32 code,
    /** For people: what was wrong, and what would be right. */
    2: string msg,
    /** Names the delayed message, for a later cancel. */
    3: string uniqDelayMsgId
}

service ProducerService {
    /** Stores one message; timeout in milliseconds. Code 0 means stored. */
    Result sendSync(1: Message message, 2: i64 timeout),
    /**
     * Stores some messages, those for one queue in their order. Code 0 means that all are stored, else
     * it is the first failure's, and the messages' results say which are.
     */
    Result sendBatchSync(1: list<Message> messages),
    /** As sendSync; here too the answer comes after the message was stored. */
    Result sendAsync(1: Message message),
    /** timeout in milliseconds. */
    DelayResult sendDelaySync(1: DelayMessage delayMessage, 2: i64 timeout)
}
