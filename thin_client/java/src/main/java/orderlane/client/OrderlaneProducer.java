package orderlane.client;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import orderlane.client.internal.ProducerEngine;
import orderlane.client.internal.Times;

/**
 * Sends messages; may be shared by threads, which then wait for each other.
 *
 * <pre>{@code
 * try (var producer = OrderlaneProducer.builder("proxy:9713").build()) {
 *     producer.send(OutgoingMessage.to("orders").key("customer-7").body("{\"id\": 7}").build());
 * }
 * }</pre>
 *
 * <p>A message is sent again under the same id until it is stored or time is up, so it may be
 * stored twice; consumers can tell by {@link Message#messageId}. When a call fails, calls that wait
 * behind it with messages of its keys fail too, unsent: what the application sends again is not
 * overtaken.
 */
public final class OrderlaneProducer implements AutoCloseable {
    private final ProducerEngine engine;

    private OrderlaneProducer(ProducerEngine engine) {
        this.engine = engine;
    }

    /** {@code servers}: as for consumers. */
    public static Builder builder(String... servers) {
        return new Builder(List.of(servers));
    }

    /** Stores one message and returns its id. Throws SendFailedException. */
    public String send(OutgoingMessage message) {
        return engine.send(List.of(message)).get(0);
    }

    /**
     * Stores messages, those of one sharding key in their order, and returns their ids. Throws
     * SendFailedException: its failures name what is not known to be stored, the rest is. Large
     * batches go in several requests; after one that failed none follows.
     */
    public List<String> sendBatch(List<OutgoingMessage> messages) {
        return engine.send(messages);
    }

    /** Waits for the sends that are under way, and ends the connection. */
    @Override
    public void close() {
        engine.close();
    }

    /** What a producer can be told. */
    public static final class Builder extends ClientBuilder<Builder> {
        private Duration sendTimeout = Duration.ofSeconds(10);
        private TraceHook trace = new TraceHook() {};

        private Builder(List<String> servers) {
            super(servers);
        }

        @Override
        Builder self() {
            return this;
        }

        /** How long a send may try, waiting for earlier ones included; default 10 s. */
        public Builder sendTimeout(Duration time) {
            sendTimeout = Times.checked("sendTimeout", time);
            return this;
        }

        /** Connects messages to traces. */
        public Builder trace(TraceHook hook) {
            trace = Objects.requireNonNull(hook);
            return this;
        }

        /** The producer; it connects when something is sent. */
        public OrderlaneProducer build() {
            return new OrderlaneProducer(
                    new ProducerEngine(
                            addresses, tls, token, sendTimeout, requestTimeout, trace, log));
        }
    }
}
