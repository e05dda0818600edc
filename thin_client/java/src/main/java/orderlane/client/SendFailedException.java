package orderlane.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;

/** A message, or a part of a batch, was not stored, or nobody knows whether it was. */
public final class SendFailedException extends OrderlaneException {
    private static final long serialVersionUID = 1L;

    private final Integer code;
    private final ArrayList<String> ids;
    private final LinkedHashMap<String, Failure> failures;

    /**
     * Why one message is not known to be stored.
     *
     * @param reason for people
     * @param code the proxy's for this message, as {@code MessageResult} in producer_proxy.thrift;
     *     empty if no proxy answered
     * @param outcomeUnknown true: it may be stored nevertheless
     */
    public record Failure(String reason, OptionalInt code, boolean outcomeUnknown) {}

    /**
     * {@code code} may be null; {@code ids}: of all messages of the call, in its order; {@code
     * failures}, in that order, must not be empty.
     */
    public SendFailedException(
            String message, Integer code, List<String> ids, Map<String, Failure> failures) {
        super(message, null);
        this.code = code;
        this.ids = new ArrayList<>(ids);
        this.failures = new LinkedHashMap<>(failures);
    }

    /** Why, by message id, for each message of the call that is not known to be stored. */
    public Map<String, Failure> failures() {
        return Collections.unmodifiableMap(failures);
    }

    /** The ids of all messages of the call, in its order; those without a failure are stored. */
    public List<String> messageIds() {
        return Collections.unmodifiableList(ids);
    }

    /**
     * The first that is not known to be stored: sent again under its id, a consumer can tell that
     * it is the same.
     */
    public String messageId() {
        return failures.keySet().iterator().next();
    }

    /** The proxy's code (see {@code Result} in producer_proxy.thrift); empty if none answered. */
    public OptionalInt code() {
        return code == null ? OptionalInt.empty() : OptionalInt.of(code);
    }

    /** True if some may be stored nevertheless. */
    public boolean outcomeUnknown() {
        return failures.values().stream().anyMatch(Failure::outcomeUnknown);
    }

    /** False: the time in which trying again made sense is over, or no retry helps. */
    @Override
    public boolean retriable() {
        return false;
    }
}
