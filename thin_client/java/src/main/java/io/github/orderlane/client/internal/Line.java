package io.github.orderlane.client.internal;

import java.util.OptionalLong;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/** A thread's connection, and its wake-up call. */
final class Line {
    private final ReentrantLock lock;
    private final Supplier<OptionalLong> dueAt;
    private final Clock clock;
    private final Condition changed;
    private Connection connection;
    private boolean closed;
    /** When the waiting thread wakes up; 0: it is awake. */
    private long plannedNs;

    /** {@code dueAt}, called with the lock, returns when work is due; empty: not yet known. */
    Line(ReentrantLock lock, Clock clock, Supplier<OptionalLong> dueAt) {
        this.lock = lock;
        this.clock = clock;
        this.dueAt = dueAt;
        this.changed = lock.newCondition();
    }

    /** Returns true when work is due, false when the line is closed. Holds the lock. */
    boolean awaitDue() throws InterruptedException {
        while (!closed) {
            OptionalLong at = dueAt.get();
            long leftNs = at.isPresent() ? at.getAsLong() - clock.nowNs() : Long.MAX_VALUE;
            if (leftNs <= 0) {
                return true;
            }
            plannedNs = at.orElse(Long.MAX_VALUE);
            if (at.isPresent()) {
                changed.awaitNanos(leftNs);
            } else {
                changed.await();
            }
            plannedNs = 0;
        }
        return false;
    }

    /** Wakes the thread after a change, if it would sleep too long. Holds the lock. */
    void turn() {
        if (plannedNs != 0) {
            OptionalLong at = dueAt.get();
            if (at.isPresent() && at.getAsLong() < plannedNs) {
                changed.signal();
            }
        }
    }

    /** Returns the connection, connecting if needed. */
    Connection connected(Supplier<Connection> dial) {
        if (connection == null || connection.closed()) {
            Connection made = dial.get();
            lock.lock();
            try {
                connection = made;
                if (closed) {
                    made.close();
                }
            } finally {
                lock.unlock();
            }
        }
        return connection;
    }

    boolean closed() {
        return closed;
    }

    /** Closes the connection; the next call opens another. */
    void hangUp() {
        if (connection != null) {
            connection.close();
            connection = null;
        }
    }

    /** Ends the thread, even in the middle of a call. Holds the lock. */
    void close() {
        closed = true;
        changed.signal();
        Connection standing = connection; // its thread may hang up concurrently
        if (standing != null) {
            standing.close();
        }
    }
}
