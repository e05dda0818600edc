package io.github.orderlane.client.internal;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;

/**
 * Keeps a producer's calls from overtaking a failed one of their key. Calls enter when they are
 * made, and leave when they have ended. When a call fails, waiting calls of its keys that were made
 * before the failure must not be sent: the application may send the failed messages again. Failures
 * are remembered only while calls wait.
 */
final class SendOrder {
    /** The scope of order within a topic: the hash of a sharding key, or a queue. */
    record Key(String topic, boolean queue, long number) {}

    private final Map<Key, Long> failed = new HashMap<>(); // the last call made before the failure
    private long last;
    private int inside;

    /** Returns the call's number. */
    synchronized long enter() {
        inside++;
        return ++last;
    }

    /** Ends a call; {@code keys}: of messages it did not store. */
    synchronized void leave(Collection<Key> keys) {
        inside--;
        keys.forEach(key -> failed.put(key, last));
        if (inside == 0) {
            failed.clear();
        }
    }

    /** True if this call was made before one of its keys failed. */
    synchronized boolean heldBack(long number, Collection<Key> keys) {
        return keys.stream().anyMatch(key -> failed.getOrDefault(key, 0L) >= number);
    }

    /** The number of failures remembered. */
    synchronized int remembered() {
        return failed.size();
    }
}
