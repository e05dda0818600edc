package orderlane.client.internal;

import java.util.List;

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
        String token) {}
