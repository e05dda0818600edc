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
        return new Ending(new Outcome.Retry(Optional.empty(), Texts.described(error)), error);
    }

    boolean isOk() {
        return outcome instanceof Outcome.Ok;
    }
}
