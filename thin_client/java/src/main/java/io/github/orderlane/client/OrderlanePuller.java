package io.github.orderlane.client;

import io.github.orderlane.client.internal.ClientNames;
import io.github.orderlane.client.internal.PullerEngine;
import io.github.orderlane.client.internal.Times;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * Pulls and settles messages of a group call by call, for scripts and tests. It extends, retries
 * and orders nothing: of the messages pulled, handle those of one order key one after the other,
 * each within its {@link Message#timeLeft}.
 *
 * <pre>{@code
 * try (var puller = OrderlanePuller.builder("proxy:9713").group("billing").build()) {
 *     for (Message message : puller.pull(10, Duration.ofSeconds(1))) {
 *         charge(message);
 *         puller.settle(message, Outcome.ok());
 *     }
 * }
 * }</pre>
 *
 * <p>Every call may throw ConnectionLostException, RefusedException, ProxyFaultException or
 * ProtocolException; the next call reconnects.
 */
public final class OrderlanePuller implements AutoCloseable {
    private final PullerEngine engine;

    private OrderlanePuller(PullerEngine engine) {
        this.engine = engine;
    }

    /** {@code servers}: as for consumers. */
    public static Builder builder(String... servers) {
        return new Builder(List.of(servers));
    }

    /**
     * Pulls up to {@code most} messages, waiting for the first; possibly none. Throws
     * IllegalArgumentException if {@code most} is below 1 or the wait is negative.
     */
    public List<Message> pull(int most, Duration wait) {
        if (most < 1) { // for a proxy 0 means as many as it has
            throw new IllegalArgumentException("most is " + most + ": expected at least 1");
        }
        Times.checked("wait", wait);
        return engine.pull(most, wait);
    }

    /**
     * Sends the outcome of a message that this puller pulled. False: its lease had expired, and
     * another client may have the message.
     */
    public boolean settle(Message message, Outcome outcome) {
        return engine.settle(message, Objects.requireNonNull(outcome, "outcome"));
    }

    /**
     * Makes the lease expire this long from now, at most one visibility timeout of the group; the
     * proxy may cap it further without reporting that. False: it had already expired.
     */
    public boolean extend(Message message, Duration time) {
        return engine.extend(message, time);
    }

    /**
     * Closes the connection, so that a call in another thread fails; a later call opens a new one.
     */
    @Override
    public void close() {
        engine.close();
    }

    /** Options of a puller. */
    public static final class Builder extends ClientBuilder<Builder> {
        private final List<String> topics = new ArrayList<>();
        private String group;
        private String clientId;

        private Builder(List<String> servers) {
            super(servers);
        }

        @Override
        Builder self() {
            return this;
        }

        /** The consumer group; required. */
        public Builder group(String name) {
            group = name;
            return this;
        }

        /** Adds a topic to consume; default: all topics of the group. */
        public Builder topic(String name) {
            if (name.isEmpty()) {
                throw new IllegalArgumentException(
                        "empty topic name: omit topics to consume all topics of the group");
            }
            topics.add(name);
            return this;
        }

        /** Name shown to operators; default {@code host@process-1f2e}. */
        public Builder clientId(String name) {
            clientId = Objects.requireNonNull(name);
            return this;
        }

        /** Builds the puller, which connects at the first call. */
        public OrderlanePuller build() {
            if (group == null || group.isEmpty()) {
                throw new IllegalArgumentException(
                        "group is empty: expected the name of a consumer group");
            }
            return new OrderlanePuller(
                    new PullerEngine(
                            addresses,
                            tls,
                            token,
                            group,
                            topics.isEmpty() ? null : List.copyOf(topics),
                            clientId == null || clientId.isEmpty()
                                    ? ClientNames.clientId()
                                    : clientId,
                            requestTimeout));
        }
    }
}
