package io.github.orderlane.client;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Until it is closed, one thread of those that this thread and its descendants make cannot be
 * made, as if the system had no more.
 */
final class ScarceThreads implements AutoCloseable {
    private final AtomicInteger made = new AtomicInteger();
    private final InheritableThreadLocal<Boolean> mark =
            new InheritableThreadLocal<>() {
                @Override
                protected Boolean childValue(Boolean parent) {
                    if (made.incrementAndGet() == refused) {
                        throw new OutOfMemoryError("unable to create native thread");
                    }
                    return parent;
                }
            };
    private volatile int refused;

    /** {@code refused}: its number, from 1. */
    ScarceThreads(int refused) {
        new CompletableFuture<Void>().orTimeout(1, TimeUnit.NANOSECONDS); // the JDK's thread is there
        this.refused = refused;
        mark.set(true);
    }

    /** Whether that thread was refused. */
    boolean ranOut() {
        return made.get() >= refused;
    }

    @Override
    public void close() {
        refused = 0;
        mark.remove();
    }
}
