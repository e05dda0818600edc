package io.github.orderlane.client;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/**
 * A handler's result for a message. An exception has the same effect as {@link #retry()}; its text
 * is shown to operators.
 */
public sealed interface Outcome {

    /** Handled: the key continues. */
    record Ok() implements Outcome {}

    /**
     * Redeliver the message; its order key waits meanwhile.
     *
     * @param after time until the retry; empty: the group's next retry interval
     * @param reason shown to operators; null, as the message of many exceptions, counts as empty
     */
    record Retry(Optional<Duration> after, String reason) implements Outcome {
        public Retry {
            reason = Objects.requireNonNullElse(reason, "");
            if (after.isPresent() && after.get().isNegative()) {
                throw new IllegalArgumentException(
                        "retry after " + after.get() + ": expected 0 or more");
            }
        }
    }

    /**
     * No retry will help: the group's failure policy applies at once.
     *
     * @param reason shown to operators; null, as the message of many exceptions, counts as empty
     */
    record Reject(String reason) implements Outcome {
        public Reject {
            reason = Objects.requireNonNullElse(reason, "");
        }
    }

    /** Released unhandled: redelivered at once, without counting an attempt. */
    record Defer() implements Outcome {}

    /** Returns the outcome of a handled message. */
    static Outcome ok() {
        return new Ok();
    }

    /** Returns a retry after the group's next retry interval. */
    static Outcome retry() {
        return new Retry(Optional.empty(), "");
    }

    /** Returns a retry after this time. Throws IllegalArgumentException if it is negative. */
    static Outcome retryAfter(Duration after) {
        return new Retry(Optional.of(after), "");
    }

    /** Returns a rejection; the reason is one short sentence for operators. */
    static Outcome reject(String reason) {
        return new Reject(reason);
    }

    /** Returns the outcome of an unhandled message. */
    static Outcome defer() {
        return new Defer();
    }

    /** Returns {@code ok}, {@code retry}, {@code reject} or {@code defer}. */
    default String kind() {
        if (this instanceof Ok) {
            return "ok";
        }
        if (this instanceof Reject) {
            return "reject";
        }
        return this instanceof Defer ? "defer" : "retry";
    }
}
