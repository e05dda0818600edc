package orderlane.client.internal;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;

/**
 * Which calls of a producer may still go: none that overtakes a failed one of its key. Calls enter
 * when they are made, and leave when they have ended. When a call fails, those of its keys that
 * were made before that, and wait, must not go: the application may send the failed one again.
 * Failures are remembered only while calls wait.
 */
final class SendOrder {
    /** By what messages of a topic keep their order: the hash of a sharding key, or a queue. */
    record Key(String topic, boolean queue, long number) {}

    private final Map<Key, Long> failed = new HashMap<>(); // the last call made before the failure
    private long last;
    private int inside;

    /** Returns the call's number. */
    synchronized long enter() {
        inside++;
        return ++last;
    }

    /** A call has ended; {@code keys}: of what it did not store. */
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

    /** Failures that are remembered. */
    synchronized int remembered() {
        return failed.size();
    }
}
