package io.github.orderlane.client;

import io.github.orderlane.client.internal.ProducerEngine;
import io.github.orderlane.client.internal.Times;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;

/**
 * Sends messages. Threads may share it; their calls then wait for each other.
 *
 * <pre>{@code
 * try (var producer = OrderlaneProducer.builder("proxy:9713").build()) {
 *     producer.send(OutgoingMessage.to("orders").key("customer-7").body("{\"id\": 7}").build());
 * }
 * }</pre>
 *
 * <p>A message is resent under the same id until it is stored or time is up, so it may be stored
 * twice; consumers recognize duplicates by {@link Message#messageId}. When a call fails, calls
 * already waiting with messages of the same keys fail too, unsent, so they cannot overtake a
 * message that the application sends again.
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
     * Stores messages, those of one sharding key in order, and returns their ids. Throws
     * SendFailedException, whose failures are the messages not known to be stored; the rest is
     * stored. Large batches take several requests; none is sent after one that failed.
     */
    public List<String> sendBatch(List<OutgoingMessage> messages) {
        return engine.send(messages);
    }

    /**
     * As send, without waiting: stores one message, and completes with its id, or with the
     * SendFailedException that send would throw. The message has its place in the order when this
     * returns, also among calls of send. The trace hook is called before. Calls wait in memory, at
     * most for the send timeout; cancelling the future does not stop the send. Throws
     * IllegalStateException if the producer is closed.
     */
    public CompletableFuture<String> sendAsync(OutgoingMessage message) {
        return engine.sendAsync(List.of(message)).thenApply(ids -> ids.get(0));
    }

    /** As sendBatch, without waiting; see {@link #sendAsync}. */
    public CompletableFuture<List<String>> sendBatchAsync(List<OutgoingMessage> messages) {
        return engine.sendAsync(messages);
    }

    /** Waits for all sends made before, those without waiting too, and closes the connection. */
    @Override
    public void close() {
        engine.close();
    }

    /** Options of a producer. */
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

        /** Limits a send, including the wait for earlier ones; default 10 s. */
        public Builder sendTimeout(Duration time) {
            sendTimeout = Times.checked("sendTimeout", time);
            return this;
        }

        /** Adds trace contexts to messages. */
        public Builder trace(TraceHook hook) {
            trace = Objects.requireNonNull(hook);
            return this;
        }

        /** Builds the producer, which connects at the first send. */
        public OrderlaneProducer build() {
            return new OrderlaneProducer(
                    new ProducerEngine(
                            addresses, tls, token, sendTimeout, requestTimeout, trace, log));
        }
    }
}
