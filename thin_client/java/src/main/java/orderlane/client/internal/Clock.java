package orderlane.client.internal;

/**
 * The clock that leases are counted on, in nanoseconds. It goes on while the machine is suspended,
 * which {@link System#nanoTime} does not: where the wall clock has gone a second further, the rest
 * is added. A wall clock that was merely set forward makes leases look over, so they are confirmed
 * by an {@code extend} before their messages are handled; no harm is done.
 */
public final class Clock {
    private static final long SUSPENDED_NS = 1_000 * Times.MS;

    private final long beginNs = System.nanoTime() - SUSPENDED_NS;
    private long monotonicNs = System.nanoTime();
    private long wallMs = System.currentTimeMillis();
    private long addedNs;

    /** Now; above 0, and only differences mean something. */
    public synchronized long nowNs() {
        return advance(System.nanoTime(), System.currentTimeMillis());
    }

    /** Takes a reading of both clocks; returns the time. */
    synchronized long advance(long newMonotonicNs, long newWallMs) {
        long passedNs = newMonotonicNs - monotonicNs;
        long wallPassedNs = (newWallMs - wallMs) * Times.MS;
        if (wallPassedNs - passedNs >= SUSPENDED_NS) {
            addedNs += wallPassedNs - passedNs;
        }
        monotonicNs = newMonotonicNs;
        wallMs = newWallMs;
        return newMonotonicNs - beginNs + addedNs;
    }
}
