package orderlane.client.internal;

import java.util.List;
import orderlane.client.gen.consumer.AckBatch;
import orderlane.client.gen.consumer.PullRequest;

/**
 * What a session is told once.
 *
 * @param group the consumer group
 * @param topics null: any topic of the group
 * @param clientId shown to operators
 * @param version name and version of this library
 * @param concurrency handlers at work at most
 * @param prefetch messages that wait here beside them at most
 * @param maxRun consecutive messages of an order key that may come together
 * @param ackLingerNs how long a verdict waits for the next pull
 * @param requestPrefix makes the ids of pulls unique: processes may share a client id
 * @param token goes with every request; null: none
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

    /** A pull for so many messages; {@code acks} may be null. */
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
