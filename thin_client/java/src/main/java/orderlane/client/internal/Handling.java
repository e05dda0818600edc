package orderlane.client.internal;

import java.util.List;

/** One handler at work, from when it was given its messages. */
final class Handling {
    final List<HeldMessage> run;
    private final Thread thread = Thread.currentThread();
    private boolean ended;
    private boolean interrupted;
    /** The time to drain is up: what the handler fails with now is our doing. */
    private boolean abandoned;

    Handling(List<HeldMessage> run) {
        this.run = run;
    }

    Thread thread() {
        return thread;
    }

    /** Interrupts the handler, once, and nothing that its thread does later. */
    synchronized void interrupt() {
        if (!ended && !interrupted) {
            interrupted = true;
            thread.interrupt();
        }
    }

    /** As interrupt, because the consumer waits no longer; also if it went on after a first one. */
    synchronized void abandon() {
        abandoned = true;
        interrupted = false;
        interrupt();
    }

    /** The handler has ended; returns whether it was abandoned. Caller: its thread. */
    synchronized boolean end() {
        ended = true;
        Thread.interrupted(); // ours, or one that it kept: nothing to the next handler
        return abandoned;
    }
}
