package io.github.orderlane.client.internal;

import java.util.List;

/** One run of a handler, from when it receives its messages. */
final class Handling {
    final List<HeldMessage> run;
    private final Thread thread = Thread.currentThread();
    /** Held during callbacks, which may need the consumer's lock: taken before this one's monitor. */
    private final Object telling = new Object();
    private boolean ended;
    private boolean interrupted;
    /** The drain timed out: it caused any failure of the handler from here on. */
    private boolean abandoned;

    Handling(List<HeldMessage> run) {
        this.run = run;
    }

    Thread thread() {
        return thread;
    }

    /** Interrupts the handler, once, without affecting later work of its thread. */
    synchronized void interrupt() {
        if (!ended && !interrupted) {
            interrupted = true;
            thread.interrupt();
        }
    }

    /** Calls the application because of the handler, which ends afterwards; not if it has ended. */
    void whileRunning(Runnable call) {
        synchronized (telling) {
            if (!hasEnded()) {
                call.run();
            }
        }
    }

    private synchronized boolean hasEnded() {
        return ended;
    }

    /** As interrupt, because the drain timed out; also after an earlier interrupt. */
    synchronized void abandon() {
        abandoned = true;
        interrupted = false;
        interrupt();
    }

    /** Ends the handling; returns whether it was abandoned. Called on its thread. */
    boolean end() {
        synchronized (telling) {
            synchronized (this) {
                ended = true;
                Thread.interrupted(); // must not affect the next handler
                return abandoned;
            }
        }
    }
}
