package orderlane.client;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/**
 * What became of a message, as its handler says. An exception means the same as {@link #retry()},
 * with its text for the operator.
 */
public sealed interface Outcome {

    /** Handled: the message is done, its key goes on. */
    record Ok() implements Outcome {}

    /**
     * Give it to me again; its order key waits meanwhile.
     *
     * @param after from now; empty: after the group's next retry interval
     * @param reason for the operator; may be empty
     */
    record Retry(Optional<Duration> after, String reason) implements Outcome {
        public Retry {
            Objects.requireNonNull(reason, "reason");
            if (after.isPresent() && after.get().isNegative()) {
                throw new IllegalArgumentException(
                        "retry after " + after.get() + ": it should be 0 or more");
            }
        }
    }

    /**
     * No retry will help: the group's failure policy applies at once.
     *
     * @param reason for the operator; may be empty
     */
    record Reject(String reason) implements Outcome {
        public Reject {
            Objects.requireNonNull(reason, "reason");
        }
    }

    /** Given back unhandled: it comes again at once, and no attempt is counted. */
    record Defer() implements Outcome {}

    /** Handled. */
    static Outcome ok() {
        return new Ok();
    }

    /** Again, after the group's next retry interval. */
    static Outcome retry() {
        return new Retry(Optional.empty(), "");
    }

    /** Again, so long from now. Throws IllegalArgumentException if that is negative. */
    static Outcome retryAfter(Duration after) {
        return new Retry(Optional.of(after), "");
    }

    /** Never again; the reason is one short sentence for the operator. */
    static Outcome reject(String reason) {
        return new Reject(reason);
    }

    /** Given back unhandled. */
    static Outcome defer() {
        return new Defer();
    }

    /** {@code ok}, {@code retry}, {@code reject} or {@code defer}. */
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
