/**
 * The consumer proxy's interface for thin clients.
 *
 * Field ids below 70 and their names are DDMQ's, so that its clients work unmodified. Ids from 70 on
 * are orderlane's; all of them are optional, and old clients never see them.
 *
 * Transport: framed. Protocol: compact or binary, detected by a frame's first byte; the answer
 * uses the same. "Absent" below means that a field was not sent, which differs from an empty one.
 *
 * Ids are never reused. After a change run thrift_idl/regenerate.py.
 */
namespace py thrift_idl.gen.consumer_proxy
namespace java io.github.orderlane.client.gen.consumer
namespace go consumer
namespace cpp orderlane.gen.consumer

/** One message delivered to a client. */
struct Message {
    /** The producer's message key (several are joined by spaces); absent if none. */
    1: string key,
    /** The body as produced. */
    2: binary value,
    /** The producer's tag; absent if none. */
    3: string tag,
    /** Position in the queue, in messages from 0. Old clients ack by it. */
    4: i64 offset,
    /** The application's properties, without names reserved by the broker; absent if none. */
    5: optional map<string, string> properties,
    /** Identifies this delivery for acks. Ascending within (topic, qid as in pull); below 2^53. */
    70: optional i64 leaseId,
    /** Counts deliveries of this message, 1 for the first. Released ones are not counted. */
    71: optional i32 attempt,
    /** The producer's timestamp: milliseconds since 1970. */
    72: optional i64 bornAtMs,
    /**
     * The order key's value; absent: the message is unordered. Messages of a queue without a key of
     * their own have one that starts with the byte FF and differs between queues.
     */
    73: optional binary orderKey,
    /** Unique, and the same over redeliveries and the producer's retries: for deduplication. */
    74: optional string messageId
}

/** The source of a batch. All fields are absent in an answer without messages. */
struct Context {
    /** The requested consumer group. */
    1: string groupId,
    2: string topic,
    /**
     * The queue. Opaque to clients. In pull it is "broker_queue#k", where k identifies the period
     * of ownership; fetch, ack, ranges and getConsumeStats use "broker_queue" without a suffix.
     */
    3: string qid
}

/** Verdicts on messages of one context, by offset; further contexts follow as a linked list. */
struct ConsumeResult {
    /** The context of the offsets; its groupId applies to this link only. */
    1: Context context,
    /** Offsets of handled messages; absent: none. */
    3: list<i64> successOffsets,
    /** Offsets of messages to redeliver after the retry interval; absent: none. */
    4: list<i64> failOffsets,
    /** Verdicts on the next context. A chain has at most 61 links; lists of AckBatch have no such limit. */
    10: optional ConsumeResult& nextResult,
    /** Authenticates the client, if this is the argument of submit. */
    75: optional string token
}

/** A lease whose message failed. */
struct Nack {
    1: required i64 leaseId,
    /** Milliseconds until the retry; absent: the group's next retry interval. */
    2: optional i32 retryAfterMs,
    /** True: apply the group's failure policy at once, without a retry. Default false. */
    3: optional bool reject,
    /** One short sentence for operators; absent: no reason. */
    4: optional string reason
}

/** Verdicts on messages of one context, by lease id. Repeating one has no effect. */
struct AckBatch {
    /** The context of the leases' PullResponse, unchanged. */
    1: required Context context,
    /** Leases of handled messages; absent: none. */
    2: optional list<i64> acked,
    /** Leases of failed messages; absent: none. */
    3: optional list<Nack> nacked,
    /** Leases released unhandled, without counting an attempt; absent: none. */
    4: optional list<i64> released
}

/**
 * What a client measured since its last report. Times are counted by class, in microseconds: class n
 * below 32 is n µs; with s = n / 16 - 1, rounded down, class n holds the 2^s times from
 * (n - 16 * s) * 2^s.
 */
struct ClientFigures {
    /** Maximum number of messages with handlers. */
    1: required i32 handlers,
    /** Maximum number of messages that wait in the client. */
    2: required i32 prefetch,
    /** Number of handled messages by class: from the handler's start to its verdict. */
    3: optional map<i32, i32> handling,
    /** Number of requests by class: from sending to the answer, without pulls that waited. */
    4: optional map<i32, i32> roundTrips
}

/** Requests messages. Verdicts on earlier ones ride along and are applied first. */
struct PullRequest {
    1: required string groupId,
    /** Limits messages to this topic; absent: all topics of the group. */
    2: optional string topic,
    /** Maximum number of messages; absent: the group's max_pull_batch (8 for clients that use no id above 69). */
    10: optional i32 maxBatchSize,
    /** Milliseconds to wait for a message, from 20 to 30,000 (1,500 for clients that use no id above 69). */
    11: optional i32 maxLingerTime,
    /** Verdicts by offset; absent: none. */
    50: optional ConsumeResult result,
    /** Name and version of the client library; for statistics only. */
    60: optional string version,
    /** Verdicts by lease id, instead of result; absent: none. */
    70: optional list<AckBatch> acks,
    /**
     * Identifies this pull within clientId, which must be set too; up to 256 characters. Repeating
     * an id returns the same answer, without leases that have expired: a client repeats a pull whose
     * answer was lost, and counts its leases from the first sending. The last 4 answers are kept.
     */
    71: optional string requestId,
    /** The name shown to operators; any text up to 256 bytes. */
    72: optional string clientId,
    /**
     * Maximum number of consecutive messages of one order key in a batch. Default 1. More is for
     * clients that handle such a run in sequence and stop at its first failure, which they nack,
     * releasing the rest in the same request. A run is extended, expires and is released as one; an
     * ack inside it takes effect once those ahead of it are finished. Only messages that never
     * failed are delivered in runs.
     */
    73: optional i32 maxRun,
    /** True: the answer may hold batches of several queues, maxBatchSize in all. Default false. */
    74: optional bool manyQueues,
    /** Authenticates the client. */
    75: optional string token,
    /** Limits messages to these topics; excludes field 2. */
    76: optional list<string> topics,
    /** For statistics only; a few times a second is enough. */
    77: optional ClientFigures figures
}

/** A batch of one queue, and with manyQueues further ones. */
struct PullResponse {
    /** The source of the messages; none of its fields is set if there are no messages. */
    1: Context context,
    /** In delivery order; empty if the wait ended without a message. */
    2: list<Message> messages,
    /** Batches of further queues, without a more of their own. Absent: none. */
    70: optional list<PullResponse> more,
    /**
     * Length of this batch's leases in milliseconds, from the time when the client sent the pull.
     * Absent in an entry of more: as in the outer answer.
     */
    71: optional i32 leaseMs,
    /** host:port of the proxy that holds these leases, for settle and extend. Absent: as for leaseMs. */
    72: optional string home,
    /** True: the pull waited at the proxy for a message. Default false. */
    73: optional bool waited
}

/** Requests a group's offsets. */
struct ConsumeStatsRequest {
    1: required string group,
    /** Absent: all topics of the group. */
    2: optional string topic,
    /** Name and version of the client library; for statistics only. */
    3: optional string version,
    /** Authenticates the client. */
    75: optional string token
}

/** A group's offsets in one topic. */
struct ConsumeStats {
    1: string group,
    2: string topic,
    /** By queue: the committed offset, the next one the group needs. */
    3: map<string, i64> consumeOffsets,
    /** By queue: the end offset, the next one the broker writes. */
    4: map<string, i64> produceOffsets
}

/** Requests messages by offset, for bulk readers: no leases, no order keys. */
struct FetchRequest {
    /** Identifies one reader of the group; unique. */
    1: required string consumerId,
    2: required string groupId,
    /** Ignored; sent by DDMQ's clients. */
    3: required string cluster,
    /**
     * By topic, by queue: the first offset to return. Absent or empty: the queues assigned to this
     * consumerId, from the committed offset.
     */
    4: optional map<string, map<string, i64>> fetchOffset,
    /**
     * Maximum number of messages per queue; absent: the group's max_pull_batch, or with format 1 as
     * many as an answer holds.
     */
    10: optional i32 maxBatchSize,
    /**
     * Milliseconds to wait while no queue has a message, or bulk readers are throttled; from 20 to
     * 30,000.
     */
    11: optional i32 maxLingerTime,
    /** Name and version of the client library; for statistics only. */
    60: optional string version,
    /** 0 (default): messages; 1: stored records. */
    70: optional i32 format,
    /**
     * True: the reader needs no bodies. With format 1 large ones are left out: such a record has an
     * empty body, states no checksum of it, and its checksum as a whole is wrong. Default: false.
     */
    71: optional bool withoutBodies,
    /** Authenticates the client. */
    75: optional string token
}

/** The messages or records of one queue. */
struct QidResponse {
    1: required string topic,
    2: required string qid,
    /**
     * The next offset to request; set even if there are no messages. With format 1 the records cover
     * all offsets before it. In an entry without records it may skip offsets that the broker no
     * longer has.
     */
    3: optional i64 nextRequestOffset,
    /** Messages by ascending offset; may be empty. Empty with format 1. */
    10: required list<Message> messages,
    /**
     * With format 1: unmodified slices of the broker's log, with all tags; the reader decodes them.
     * Empty if there are none.
     */
    70: optional binary records,
    /**
     * The incarnation of the topic, as in QueueRange. Absent: the broker does not report it, or was
     * not asked.
     */
    11: optional i64 life
}

/** One entry per requested queue. */
struct FetchResponse {
    /** 0 or absent: success; 401: the token is missing or unknown; 403: not allowed. */
    1: optional i32 code,
    10: required list<QidResponse> results
}

/** Sets the committed offsets of a bulk reader. */
struct AckResult {
    1: required string consumerId,
    2: required string groupId,
    /** Ignored; sent by DDMQ's clients. */
    3: required string cluster,
    /** By topic, by queue: the next offset the group needs. */
    4: required map<string, map<string, i64>> offsets,
    /** Authenticates the client. */
    75: optional string token
}

/** The proxy refused the request. */
exception PullException {
    /**
     * 400: the request is invalid, or not supported by this version; 401: the token is missing or
     * unknown; 403: not allowed; 404: no such group or topic. From 500 on: the same request may
     * succeed later, or at another proxy.
     */
    1: i32 code,
    /** A readable text: what was wrong, where, and what would be right. */
    2: string message
}

/** Verdicts without a pull. */
struct AckRequest {
    1: required string groupId,
    2: required list<AckBatch> acks,
    /** The name shown to operators. */
    72: optional string clientId,
    /** Authenticates the client. */
    75: optional string token,
    /** As in a pull. */
    77: optional ClientFigures figures
}

/** Identifies one lease. */
struct LeaseRef {
    /** The context of the lease's PullResponse, unchanged. */
    1: required Context context,
    2: required i64 leaseId
}

/** The leases of a request that were no longer held: the request had no effect on them. */
struct AckAnswer {
    1: required list<LeaseRef> notHeld
}

/** Extends leases. */
struct ExtendRequest {
    1: required string groupId,
    2: required list<LeaseRef> leases,
    /** Milliseconds from now until the leases expire; at most one visibility timeout. */
    3: required i32 ms,
    /** The name shown to operators. */
    72: optional string clientId,
    /** Authenticates the client. */
    75: optional string token
}

/** Requests the offsets of all queues of some topics. */
struct RangesRequest {
    1: required string groupId,
    2: required list<string> topics,
    /** Also requests the first offset stored at or after this time: milliseconds since 1970. */
    3: optional i64 timestampMs,
    /** True: the committed offsets are not needed; their absence means nothing. Default: false. */
    4: optional bool withoutCommitted,
    /** Authenticates the client. */
    75: optional string token
}

/** The offsets of one queue. */
struct QueueRange {
    1: required string topic,
    2: required string qid,
    /** The oldest offset the broker still has. */
    3: required i64 beginOffset,
    /** The next offset the broker writes. */
    4: required i64 endOffset,
    /** The next offset the group needs; absent: never committed. */
    5: optional i64 committedOffset,
    /** The first offset stored at or after the requested time; absent: no time was requested. */
    6: optional i64 offsetAtTimestamp,
    /**
     * The incarnation of the topic, which changes when the topic is deleted and created again, and
     * offsets restart. Absent: the broker does not report it.
     */
    7: optional i64 life
}

/** Requests the topics that a bulk reader can read. */
struct TopicsRequest {
    1: required string groupId,
    /** Authenticates the client. */
    75: optional string token
}

/** The progress of a bulk reader. */
struct ProgressReport {
    1: required string groupId,
    2: required string consumerId,
    /** Topic, qid, and the next offset that the group needs. */
    3: required map<string, map<string, i64>> offsets,
    /** By topic: messages that were gone before the reader got to them. */
    4: optional map<string, i64> lost,
    /** By topic: messages that the reader did not read although they may still exist. */
    5: optional map<string, i64> skipped,
    /** By topic: messages that the reader read again after a failure. */
    6: optional map<string, i64> repeated,
    /**
     * Topic, qid, and the incarnation of the topic in which the reader read the queue, as in
     * QueueRange. Nothing is set if the topic is in another one. Absent: the reader does not know it.
     */
    7: optional map<string, map<string, i64>> lives,
    /** Authenticates the client. */
    75: optional string token
}

/** The answer to a report. */
struct ReportAnswer {
    /** Why the offsets were not set, a sentence; absent: they were set. */
    1: optional string refusal
}

service ConsumerService {
    /** Applies verdicts, then returns messages, waiting for the first if necessary. */
    PullResponse pull(1: PullRequest request) throws (1: PullException error),
    /** Applies verdicts by offset. Always returns true. */
    bool submit(1: ConsumeResult result) throws (1: PullException error),
    list<ConsumeStats> getConsumeStats(1: ConsumeStatsRequest request) throws (1: PullException error),
    /** Reads by offset, for bulk readers. */
    FetchResponse fetch(1: FetchRequest request),
    /**
     * Sets a bulk group's committed offsets. False: another consumerId did so within the last 60 s, or
     * an offset is below 0 or beyond the end of its queue (nothing was set), or a broker failed.
     */
    bool ack(1: AckResult result),
    /** Applies verdicts by lease id. */
    AckAnswer settle(1: AckRequest request) throws (1: PullException error),
    /** Extends leases, and reports which are no longer held. */
    AckAnswer extend(1: ExtendRequest request) throws (1: PullException error),
    list<QueueRange> ranges(1: RangesRequest request) throws (1: PullException error),
    /**
     * The existing topics that the caller can read in bulk as the group: those of its settings, or all
     * topics of applications if the proxy creates groups on their first use and the group has no
     * settings.
     */
    list<string> topics(1: TopicsRequest request) throws (1: PullException error),
    /** Sets a bulk group's committed offsets as ack does, and counts messages for the metrics. */
    ReportAnswer report(1: ProgressReport request) throws (1: PullException error)
}
