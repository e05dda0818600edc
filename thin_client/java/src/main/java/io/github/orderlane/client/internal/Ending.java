package io.github.orderlane.client.internal;

import io.github.orderlane.client.Outcome;
import java.util.Optional;

/** The end of a handler: its outcome, and its error, if any. */
record Ending(Outcome outcome, Throwable error) {
    static final Ending OK = new Ending(Outcome.ok(), null);
    static final Ending DEFER = new Ending(Outcome.defer(), null);

    static Ending of(Outcome outcome) {
        return new Ending(outcome, null);
    }

    /** An exception means retry; operators see its class and message. */
    static Ending failed(Throwable error) {
        String text = error.getMessage();
        String name = error.getClass().getSimpleName();
        if (name.isEmpty()) {
            name = error.getClass().getName();
        }
        String reason = text == null ? name : name + ": " + text;
        return new Ending(new Outcome.Retry(Optional.empty(), reason), error);
    }

    boolean isOk() {
        return outcome instanceof Outcome.Ok;
    }
}
