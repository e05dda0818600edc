package io.github.orderlane.client.internal;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;

/** Calls one at a time, in the order in which they entered, whichever threads they run on. */
final class Turns {
    private final Queue<CompletableFuture<Void>> inside = new ArrayDeque<>(); // the first has its turn

    /** Returns the call's turn, which is complete when all that entered before have left. */
    CompletableFuture<Void> enter() {
        CompletableFuture<Void> turn = new CompletableFuture<>();
        synchronized (inside) {
            inside.add(turn);
            if (inside.size() > 1) {
                return turn;
            }
        }
        turn.complete(null);
        return turn;
    }

    /** Takes out a call that will not be made, before its turn or in it. */
    void abandon(CompletableFuture<Void> turn) {
        synchronized (inside) {
            if (inside.peek() != turn) {
                inside.remove(turn);
                return;
            }
        }
        leave();
    }

    /** Ends the turn of the call that has it. */
    void leave() {
        CompletableFuture<Void> next;
        synchronized (inside) {
            inside.remove();
            next = inside.peek();
        }
        if (next != null) {
            next.complete(null);
        }
    }
}
