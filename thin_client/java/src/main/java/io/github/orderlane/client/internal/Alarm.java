package io.github.orderlane.client.internal;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Runs an action after a time unless it is cancelled; on the JDK's timer thread. */
final class Alarm {
    private final CompletableFuture<Void> timer = new CompletableFuture<>();

    /** {@code action} must not block. */
    Alarm(long afterNs, Runnable action) {
        timer.orTimeout(Math.max(afterNs, 1), TimeUnit.NANOSECONDS)
                .whenComplete(
                        (nothing, timeout) -> {
                            if (timeout != null) {
                                action.run();
                            }
                        });
    }

    /** False: it has gone off, and its action has begun, or begins at any moment. */
    boolean callOff() {
        return timer.complete(null) || !timer.isCompletedExceptionally();
    }
}
