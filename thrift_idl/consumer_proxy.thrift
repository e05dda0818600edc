/**
 * What thin clients ask of the consumer proxy.
 *
 * Field ids below 70 and all names beside them are DDMQ's, so that its clients work unmodified.
 * Ids from 70 on are orderlane's own; every one of them is optional, and old clients never see them.
 *
 * Transport: framed. Protocol: compact, or binary (told apart by a frame's first byte, answered in
 * kind). A field called "absent" below is one that was not sent; it differs from an empty one.
 *
 * Ids are never reused. After a change run thrift_idl/regenerate.py.
 */
namespace py thrift_idl.gen.consumer_proxy
namespace java orderlane.client.gen.consumer
namespace go consumer
namespace cpp orderlane.gen.consumer

/** One message in the hands of a client. */
struct Message {
    /** The producer's message key (several are joined by spaces); absent if it gave none. */
    1: string key,
    /** The body, as it was produced. */
    2: binary value,
    /** The producer's tag; absent if it gave none. */
    3: string tag,
    /** Place in its queue, counted in messages from 0. Old clients ack by it. */
    4: i64 offset,
    /** The application's properties; names reserved by the broker are left out; absent if none. */
    5: optional map<string, string> properties,
    /** Names this delivery for acks. Counts from 1 within (topic, qid as shown by pull); below 2^53. */
    70: optional i64 leaseId,
    /** Which hand-out of this message it is: 1 for the first. Released ones are not counted. */
    71: optional i32 attempt,
    /** When the producer made the message: milliseconds since 1970. */
    72: optional i64 bornAtMs,
    /** The value by which the message keeps its order; absent: it is in no order. */
    73: optional binary orderKey,
    /** Unique and the same over redeliveries and a producer's retries: for de-duplication. */
    74: optional string messageId
}

/** Where a batch comes from. All fields are absent in an answer without messages. */
struct Context {
    /** The consumer group that was asked for. */
    1: string groupId,
    2: string topic,
    /**
     * The queue. Opaque to clients. From pull it is "broker_queue#k", k naming the period of
     * ownership; fetch, ack, ranges and getConsumeStats use "broker_queue" without a suffix.
     */
    3: string qid
}

/** The verdicts on messages of one context, by offset; further contexts hang on as a linked list. */
struct ConsumeResult {
    /** Where the offsets belong; its groupId counts for this link alone. */
    1: Context context,
    /** Offsets of messages that were handled; absent: none. */
    3: list<i64> successOffsets,
    /** Offsets of messages to be given out again after the retry interval; absent: none. */
    4: list<i64> failOffsets,
    /** The verdicts on the next context. A chain may have 61 links at most; lists of AckBatch have no such limit. */
    10: optional ConsumeResult& nextResult,
    /** Who is asking, when this is the argument of submit. */
    75: optional string token
}

/** One lease that the client could not turn into a success. */
struct Nack {
    1: required i64 leaseId,
    /** Milliseconds until the message may come again; absent: the group's next retry interval. */
    2: optional i32 retryAfterMs,
    /** True: straight to the group's failure policy, no further try. Default false. */
    3: optional bool reject,
    /** Why, for the operator: one short sentence; absent: none given. */
    4: optional string reason
}

/** The verdicts on messages of one context, by lease id. Repeating one has no further effect. */
struct AckBatch {
    /** Context of the PullResponse that brought the leases, returned as it was. */
    1: required Context context,
    /** Leases whose messages were handled; absent: none. */
    2: optional list<i64> acked,
    /** Leases whose messages failed; absent: none. */
    3: optional list<Nack> nacked,
    /** Leases given back unhandled: no attempt is counted; absent: none. */
    4: optional list<i64> released
}

/** Asks for messages; the verdicts on earlier ones ride along and are applied first. */
struct PullRequest {
    1: required string groupId,
    /** Messages of this topic only; absent: of any topic of the group. */
    2: optional string topic,
    /** Messages wanted at most; absent: the group's max_pull_batch (8 for clients that use no id above 69). */
    10: optional i32 maxBatchSize,
    /** Milliseconds to wait when there is nothing to give: 20 at least, 30,000 at most (1,500 for clients that use no id above 69). */
    11: optional i32 maxLingerTime,
    /** Verdicts by offset; absent: none. */
    50: optional ConsumeResult result,
    /** Name and version of the client library; for statistics only. */
    60: optional string version,
    /** Verdicts by lease id, instead of result; absent: none. */
    70: optional list<AckBatch> acks,
    /**
     * Names this pull, within clientId, which has to be set as well; up to 256 characters. The same
     * id again gets the same answer, as far as its leases are alive: a client repeats a pull whose
     * answer was lost, and counts the leases from its first sending. The last 4 answers are kept.
     */
    71: optional string requestId,
    /** Names the client on the operator's pages; any text up to 256 bytes. */
    72: optional string clientId,
    /**
     * Consecutive messages of one order key in a batch at most. Default 1. More is for clients that
     * handle such a run in sequence and stop at its first failure, which they nack, releasing the rest
     * in the same request. A run is extended, ends and is given back as one; an ack inside it counts
     * once those ahead of it are finished. Only messages that never failed come in runs.
     */
    73: optional i32 maxRun,
    /** True: the answer may hold batches of several queues, maxBatchSize counting over all. Default false. */
    74: optional bool manyQueues,
    /** Who is asking. */
    75: optional string token,
    /** Messages of any of these topics; excludes field 2. */
    76: optional list<string> topics
}

/** A batch of one queue, and with manyQueues further ones. */
struct PullResponse {
    /** Where the messages come from; no field of it is set when there are none. */
    1: Context context,
    /** In the order of handing out; empty when the wait ended without a message. */
    2: list<Message> messages,
    /** Batches of further queues; theirs are empty. Absent: none. */
    70: optional list<PullResponse> more,
    /**
     * Milliseconds for which this batch's leases last, counted by the client from when it sent the
     * pull. In an entry of more: absent means as in the outer answer.
     */
    71: optional i32 leaseMs,
    /** host:port of the proxy that holds these leases; settle and extend go there. As leaseMs. */
    72: optional string home
}

/** Asks for a group's offsets. */
struct ConsumeStatsRequest {
    1: required string group,
    /** Absent: all topics of the group. */
    2: optional string topic,
    /** Name and version of the client library; for statistics only. */
    3: optional string version,
    /** Who is asking. */
    75: optional string token
}

/** A group's offsets in one topic. */
struct ConsumeStats {
    1: string group,
    2: string topic,
    /** By queue: the committed offset, the next one that the group needs. */
    3: map<string, i64> consumeOffsets,
    /** By queue: the end offset, the next one that the broker will write. */
    4: map<string, i64> produceOffsets
}

/** Asks for messages by offset, for bulk readers: no leases, no order keys. */
struct FetchRequest {
    /** Names one reader of the group; unique. */
    1: required string consumerId,
    2: required string groupId,
    /** Not looked at; DDMQ's clients send one. */
    3: required string cluster,
    /**
     * By topic, by queue: the first offset wanted. Absent or empty: the queues that fall to this
     * consumerId, from the committed offset.
     */
    4: optional map<string, map<string, i64>> fetchOffset,
    /**
     * Messages wanted of a queue at most; absent: the group's max_pull_batch, with format 1 as many
     * as an answer holds.
     */
    10: optional i32 maxBatchSize,
    /**
     * Milliseconds to wait when no queue has a message, or while bulk readers are held back; 20 at
     * least, 30,000 at most.
     */
    11: optional i32 maxLingerTime,
    /** Name and version of the client library; for statistics only. */
    60: optional string version,
    /** 0 (default): messages; 1: stored records. */
    70: optional i32 format,
    /** Who is asking. */
    75: optional string token
}

/** What one queue has to give. */
struct QidResponse {
    1: required string topic,
    2: required string qid,
    /**
     * The offset to ask for next; set also when there are no messages. With format 1 the records are
     * those of all offsets before it; it is further only in an entry without records, where the
     * broker has the offsets between no more.
     */
    3: optional i64 nextRequestOffset,
    /** Messages by rising offset; may be empty. Empty with format 1. */
    10: required list<Message> messages,
    /**
     * With format 1: slices of the broker's log as they are, of all tags; the reader decodes them.
     * Empty if there are none.
     */
    70: optional binary records,
    /**
     * The incarnation of the topic that all of this is of, as in QueueRange. Absent: its broker does
     * not tell, or was not asked.
     */
    11: optional i64 life
}

/** One entry for every queue asked for. */
struct FetchResponse {
    /** 0 or absent: all right; 401: the token is missing or unknown; 403: who asks may not do that. */
    1: optional i32 code,
    10: required list<QidResponse> results
}

/** Sets the committed offsets of a bulk reader. */
struct AckResult {
    1: required string consumerId,
    2: required string groupId,
    /** Not looked at; DDMQ's clients send one. */
    3: required string cluster,
    /** By topic, by queue: the next offset that the group needs. */
    4: required map<string, map<string, i64>> offsets,
    /** Who is asking. */
    75: optional string token
}

/** A request that cannot be served. */
exception PullException {
    /**
     * 400: the request is wrong, or asks for what this version does not serve; 401: the token is
     * missing or unknown; 403: who asks may not do that; 404: no such group or topic. From 500 on: the same request
     * may succeed later, or at another proxy.
     */
    1: i32 code,
    /** For people: what was wrong, where, and what would be right. */
    2: string message
}

/** Verdicts without a pull. */
struct AckRequest {
    1: required string groupId,
    2: required list<AckBatch> acks,
    /** Names the client on the operator's pages. */
    72: optional string clientId,
    /** Who is asking. */
    75: optional string token
}

/** Names one lease. */
struct LeaseRef {
    /** Context of the PullResponse that brought the lease, returned as it was. */
    1: required Context context,
    2: required i64 leaseId
}

/** The leases of a request that were no longer held: what was asked for them had no effect. */
struct AckAnswer {
    1: required list<LeaseRef> notHeld
}

/** Asks for more time. */
struct ExtendRequest {
    1: required string groupId,
    2: required list<LeaseRef> leases,
    /** Milliseconds from now until the leases shall end; one visibility timeout at most. */
    3: required i32 ms,
    /** Names the client on the operator's pages. */
    72: optional string clientId,
    /** Who is asking. */
    75: optional string token
}

/** Asks for the offsets of every queue of some topics. */
struct RangesRequest {
    1: required string groupId,
    2: required list<string> topics,
    /** Asks for the first offset stored at or after this time too: milliseconds since 1970. */
    3: optional i64 timestampMs,
    /** Who is asking. */
    75: optional string token
}

/** The offsets of one queue. */
struct QueueRange {
    1: required string topic,
    2: required string qid,
    /** The oldest offset that the broker still has. */
    3: required i64 beginOffset,
    /** The next offset that the broker will write. */
    4: required i64 endOffset,
    /** The next offset that the group needs; absent: it never committed one here. */
    5: optional i64 committedOffset,
    /** The first offset stored at or after the time asked for; absent: no time was asked for. */
    6: optional i64 offsetAtTimestamp,
    /**
     * The incarnation of the topic: another one once it was deleted and created again, so that offsets
     * begin anew. Absent: its broker does not tell.
     */
    7: optional i64 life
}

service ConsumerService {
    /** Applies the verdicts, then gives messages, waiting for some if there are none. */
    PullResponse pull(1: PullRequest request) throws (1: PullException error),
    /** Applies verdicts by offset. Always true. */
    bool submit(1: ConsumeResult result) throws (1: PullException error),
    list<ConsumeStats> getConsumeStats(1: ConsumeStatsRequest request) throws (1: PullException error),
    /** Reads by offset, for bulk readers. */
    FetchResponse fetch(1: FetchRequest request),
    /**
     * Sets a bulk group's committed offsets. False: another consumerId did so within the last 60 s, or an
     * offset is below 0 or beyond the end of its queue, and nothing was set; or a broker failed.
     */
    bool ack(1: AckResult result),
    /** Applies verdicts by lease id at once. */
    AckAnswer settle(1: AckRequest request) throws (1: PullException error),
    /** Makes leases last longer; also asks whether they are still held. */
    AckAnswer extend(1: ExtendRequest request) throws (1: PullException error),
    list<QueueRange> ranges(1: RangesRequest request) throws (1: PullException error)
}
