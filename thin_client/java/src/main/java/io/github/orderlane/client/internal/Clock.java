package io.github.orderlane.client.internal;

/**
 * The clock that leases are measured by, in nanoseconds. It runs while the machine is suspended,
 * which {@link System#nanoTime} does not: where the wall clock has advanced over a second more, the
 * difference is added. If the wall clock was merely set forward, leases appear expired and are
 * confirmed by an {@code extend} before their messages are handled, which is harmless.
 */
public final class Clock {
    private static final long SUSPENDED_NS = 1_000 * Times.MS;

    private final long beginNs = System.nanoTime() - SUSPENDED_NS;
    private long monotonicNs = System.nanoTime();
    private long wallMs = System.currentTimeMillis();
    private long addedNs;

    /** The current time; above 0, and only differences are meaningful. */
    public synchronized long nowNs() {
        return advance(System.nanoTime(), System.currentTimeMillis());
    }

    /** Records a reading of both clocks; returns the time. */
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
