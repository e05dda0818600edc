package orderlane.client.internal;

import java.util.Optional;
import orderlane.client.Outcome;

/** How a handler ended: its outcome, and the error it ended with, if any. */
record Ending(Outcome outcome, Throwable error) {
    static final Ending OK = new Ending(Outcome.ok(), null);
    static final Ending DEFER = new Ending(Outcome.defer(), null);

    static Ending of(Outcome outcome) {
        return new Ending(outcome, null);
    }

    /** An exception means retry; the proxy's operator gets its kind and text. */
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
