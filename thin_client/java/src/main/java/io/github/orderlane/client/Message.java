package io.github.orderlane.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/** One delivery of one message. */
public interface Message {

    /** The message's topic. */
    String topic();

    /** The queue and its ownership period, for example {@code broker-a_3#1}; opaque. */
    String queue();

    /** Position in the queue, in messages from 0. */
    long offset();

    /** The body as produced; not copied, so do not modify it. */
    byte[] body();

    /** The producer's message key. */
    Optional<String> key();

    /** The order key's value; empty: unordered. */
    Optional<byte[]> orderKey();

    /** The producer's tag. */
    Optional<String> tag();

    /** The application's properties, without those reserved by the broker. */
    Map<String, String> properties();

    /** Counts deliveries, 1 for the first. */
    int attempt();

    /** The producer's timestamp. */
    Optional<Instant> bornAt();

    /** Unique, and the same over redeliveries and the producer's retries: for deduplication. */
    Optional<String> messageId();

    /** Identifies this delivery in the proxy's log, together with topic and queue. */
    long leaseId();

    /** Time until the lease expires. Relevant to pullers only: consumers extend leases. */
    Duration timeLeft();

    /**
     * True once the message may be delivered to another client. Stop if you can: the handler's
     * further work may be done twice, and its outcome has no effect.
     */
    boolean leaseLost();

    /**
     * Registers a callback for the loss of the lease. It runs on a client's thread, so it must not
     * block; if the lease is already lost, it runs at once. A handler ends only after the callbacks
     * that run, and none runs after it.
     */
    void onLeaseLost(Runnable callback);

    /** Returns the body, decoded as UTF-8. */
    default String text() {
        return new String(body(), StandardCharsets.UTF_8);
    }
}
