package orderlane.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/** One delivery of one message. */
public interface Message {

    /** Where it was sent to. */
    String topic();

    /** Name of the queue's period of ownership, such as {@code broker-a_3#1}; opaque. */
    String queue();

    /** Place in its queue, in messages from 0. */
    long offset();

    /** The body as it was produced; not copied, so leave it as it is. */
    byte[] body();

    /** The producer's message key. */
    Optional<String> key();

    /** The value by which the message keeps its order; empty: it is in no order. */
    Optional<byte[]> orderKey();

    /** The producer's tag. */
    Optional<String> tag();

    /** The application's properties, without those reserved by the broker. */
    Map<String, String> properties();

    /** Which hand-out this is, 1 for the first. */
    int attempt();

    /** When the producer made it, by its clock. */
    Optional<Instant> bornAt();

    /** Unique, the same over redeliveries and a producer's retries: for de-duplication. */
    Optional<String> messageId();

    /** Names this delivery in the proxy's log, together with topic and queue. */
    long leaseId();

    /** Until the lease ends; it is extended in time, so this matters to one-shot pulls alone. */
    Duration timeLeft();

    /**
     * True once someone else may get the message: stop if you can. What this handler still does
     * may be done twice, and its outcome counts for nothing.
     */
    boolean leaseLost();

    /**
     * Has {@code told} called when the lease is lost: on a thread of the client, so it must not
     * block; at once if that has happened.
     */
    void onLeaseLost(Runnable told);

    /** The body, read as UTF-8. */
    default String text() {
        return new String(body(), StandardCharsets.UTF_8);
    }
}
