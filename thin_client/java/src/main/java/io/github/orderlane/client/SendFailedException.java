package io.github.orderlane.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;

/** Messages were not stored, or their outcome is unknown. */
public final class SendFailedException extends OrderlaneException {
    private static final long serialVersionUID = 1L;

    private final Integer code;
    private final ArrayList<String> ids;
    private final LinkedHashMap<String, Failure> failures;

    /**
     * The failure of one message.
     *
     * @param reason a readable explanation
     * @param code the proxy's for this message, as {@code MessageResult} in producer_proxy.thrift;
     *     empty if no proxy answered
     * @param outcomeUnknown true: the message may have been stored
     */
    public record Failure(String reason, OptionalInt code, boolean outcomeUnknown) {}

    /**
     * {@code code} may be null; {@code ids}: of all messages of the call, in order; {@code
     * failures}, in the same order, must not be empty.
     */
    public SendFailedException(
            String message, Integer code, List<String> ids, Map<String, Failure> failures) {
        super(message, null);
        this.code = code;
        this.ids = new ArrayList<>(ids);
        this.failures = new LinkedHashMap<>(failures);
    }

    /** Returns the failures of messages not known to be stored, by message id. */
    public Map<String, Failure> failures() {
        return Collections.unmodifiableMap(failures);
    }

    /**
     * Returns the ids of all messages of the call, in order; those without a failure are stored.
     */
    public List<String> messageIds() {
        return Collections.unmodifiableList(ids);
    }

    /**
     * Returns the id of the first message not known to be stored. Consumers recognize a message
     * sent again under its id as a duplicate.
     */
    public String messageId() {
        return failures.keySet().iterator().next();
    }

    /** The proxy's code (see {@code Result} in producer_proxy.thrift); empty if none answered. */
    public OptionalInt code() {
        return code == null ? OptionalInt.empty() : OptionalInt.of(code);
    }

    /** Returns whether some messages may have been stored. */
    public boolean outcomeUnknown() {
        return failures.values().stream().anyMatch(Failure::outcomeUnknown);
    }

    /** False: the time for retries is up, or no retry helps. */
    @Override
    public boolean retriable() {
        return false;
    }
}
