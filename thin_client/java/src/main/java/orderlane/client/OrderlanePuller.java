package orderlane.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import orderlane.client.internal.ClientNames;
import orderlane.client.internal.PullerEngine;

/**
 * Takes messages of a group and says what became of them, call by call, for scripts and tests.
 * Nothing is extended, retried or kept in order here: of several messages pulled, those of one
 * order key have to be handled one after the other, each before its {@link Message#timeLeft} is
 * over.
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
 * <p>Every call throws ConnectionLostException, RefusedException, ProxyFaultException or
 * ProtocolException; another call connects anew.
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

    /** Takes up to {@code most} messages, waiting for a first one; empty if none came. */
    public List<Message> pull(int most, Duration wait) {
        return engine.pull(most, wait);
    }

    /**
     * Says what became of a message that this puller pulled. False: its lease was over, so that
     * someone else may have got it.
     */
    public boolean settle(Message message, Outcome outcome) {
        return engine.settle(message, outcome);
    }

    /**
     * Lets the lease end so long from now, one visibility time-out of the group at most: a shorter
     * limit of the proxy is not known here. False: it is over.
     */
    public boolean extend(Message message, Duration time) {
        return engine.extend(message, time);
    }

    /** Ends the connection; another call opens a new one. */
    @Override
    public void close() {
        engine.close();
    }

    /** What a puller can be told. */
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

        /** The consumer group; has to be given. */
        public Builder group(String name) {
            group = name;
            return this;
        }

        /** Adds a topic to those wanted; default: every topic of the group. */
        public Builder topic(String name) {
            topics.add(name);
            return this;
        }

        /** Shown to operators; default {@code host@process-1f2e}. */
        public Builder clientId(String name) {
            clientId = Objects.requireNonNull(name);
            return this;
        }

        /** The puller; it connects with the first call. */
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
                            clientId == null ? ClientNames.clientId() : clientId,
                            requestTimeout));
        }
    }
}
