package io.github.orderlane.client.internal;

import io.github.orderlane.client.gen.consumer.AckBatch;
import io.github.orderlane.client.gen.consumer.PullRequest;
import java.util.List;

/**
 * Options of a session.
 *
 * @param group the consumer group
 * @param topics null: all topics of the group
 * @param clientId shown to operators
 * @param version name and version of this library
 * @param concurrency maximum number of handlers with messages
 * @param prefetch maximum number of messages buffered beyond those
 * @param maxRun maximum number of consecutive messages of an order key in one delivery
 * @param ackLingerNs how long a verdict waits for the next pull
 * @param requestPrefix makes pull ids unique: processes may share a client id
 * @param token sent with every request; null: none
 */
record SessionOptions(
        String group,
        List<String> topics,
        String clientId,
        String version,
        int concurrency,
        int prefetch,
        int maxRun,
        long ackLingerNs,
        String requestPrefix,
        String token) {

    /** Returns a pull for {@code room} messages; {@code acks} may be null. */
    PullRequest pullRequest(String requestId, int room, long lingerNs, List<AckBatch> acks) {
        PullRequest request =
                new PullRequest(group)
                        .setTopics(topics)
                        .setMaxBatchSize(room)
                        .setMaxLingerTime((int) (lingerNs / Times.MS))
                        .setVersion(version)
                        .setClientId(clientId)
                        .setManyQueues(true)
                        .setRequestId(requestId)
                        .setAcks(acks)
                        .setToken(token);
        return maxRun > 1 ? request.setMaxRun(maxRun) : request;
    }
}
