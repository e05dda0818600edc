package io.github.orderlane.client;

import io.github.orderlane.client.internal.ClientNames;
import io.github.orderlane.client.internal.ConsumerEngine;
import io.github.orderlane.client.internal.ConsumerSettings;
import io.github.orderlane.client.internal.Times;
import io.github.orderlane.client.internal.Work;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Executor;

/**
 * Pulls the messages of a consumer group in order by key, and acks the handled ones.
 *
 * <pre>{@code
 * try (var consumer = OrderlaneConsumer.builder("proxy:9713").group("billing").topic("orders")
 *         .concurrency(64).build()) {
 *     consumer.start(message -> {
 *         charge(message);
 *         return Outcome.ok();
 *     });
 *     consumer.awaitTermination();
 * }
 * }</pre>
 *
 * <p>Messages of different keys are handled in parallel, those of one key one after the other. An
 * exception in the handler means retry. Leases are extended automatically.
 */
public final class OrderlaneConsumer implements AutoCloseable {
    private final ConsumerEngine engine;

    private OrderlaneConsumer(ConsumerSettings settings) {
        this.engine = new ConsumerEngine(settings);
    }

    /**
     * {@code servers}: {@code host:port} each, or several separated by commas; when one fails, the
     * next is tried. Throws IllegalArgumentException for an invalid address.
     */
    public static Builder builder(String... servers) {
        return new Builder(List.of(servers));
    }

    /**
     * Starts to pull, and returns. A consumer is started once. Throws IllegalStateException if it
     * was started or closed before, or if the system has no more threads; then it has ended.
     */
    public void start(MessageHandler handler) {
        engine.start(Work.of(Objects.requireNonNull(handler)));
    }

    /**
     * As start, with the messages of one key that arrived together: at most {@link Builder#maxRun},
     * by default 1. A batch counts once for the concurrency.
     */
    public void startBatches(BatchHandler handler) {
        engine.start(Work.of(Objects.requireNonNull(handler)));
    }

    /**
     * Starts to drain: pulling stops, buffered messages are released, and handlers may continue for
     * the drain timeout. A second call does not wait for them: it interrupts handlers, and releases
     * the messages of those that end. Returns at once.
     */
    public void stop() {
        engine.stop();
    }

    /**
     * Waits until the consumer has ended: drained after a stop, or failed. Throws
     * RefusedException, or another failure that no retry can help.
     */
    public void awaitTermination() throws InterruptedException {
        engine.awaitTermination(Duration.ofDays(Integer.MAX_VALUE));
    }

    /** As awaitTermination; returns false if the consumer has not ended within {@code limit}. */
    public boolean awaitTermination(Duration limit) throws InterruptedException {
        return engine.awaitTermination(limit);
    }

    /**
     * Stops, and returns when the consumer has ended. An interrupt acts as a second {@link #stop}.
     * In a handler of this consumer it does not wait.
     */
    @Override
    public void close() {
        engine.close();
    }

    @Override
    public String toString() {
        return engine.toString();
    }

    /** Options of a consumer. Methods throw IllegalArgumentException for invalid values. */
    public static final class Builder extends ClientBuilder<Builder> {
        private final List<String> topics = new ArrayList<>();
        private final List<Observer> observers = new ArrayList<>();
        private String group;
        private String clientId;
        private int concurrency = 8;
        private int prefetch = -1;
        private int maxRun = 1;
        private Duration ackLinger = Duration.ofMillis(20);
        private Duration drainTimeout = Duration.ofSeconds(30);
        private Executor executor;
        private boolean interruptHandlers = true;
        private boolean drainOnShutdown = true;
        private TraceHook trace = new TraceHook() {};

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

        /** Adds topics, at least one. */
        public Builder topics(List<String> names) {
            if (names.isEmpty()) {
                throw new IllegalArgumentException(
                        "topics is empty: omit it to consume all topics of the group");
            }
            names.forEach(this::topic);
            return this;
        }

        /** Number of keys handled in parallel; default 8. */
        public Builder concurrency(int keys) {
            concurrency = atLeast(1, "concurrency", keys);
            return this;
        }

        /**
         * Number of messages buffered beyond those being handled. 0 leaves them to other clients.
         * Default: {@code concurrency}, or with runs twice {@code maxRun} if that is more.
         */
        public Builder prefetch(int messages) {
            prefetch = atLeast(0, "prefetch", messages);
            return this;
        }

        /**
         * Number of consecutive messages of one key that may arrive together, to be handled one
         * after the other or as one batch; default 1. Runs save a busy key a round trip per
         * message. When one fails, those behind it are released without counting an attempt.
         */
        public Builder maxRun(int messages) {
            maxRun = atLeast(1, "maxRun", messages);
            return this;
        }

        /** Name shown to operators; default {@code host@process-1f2e}. */
        public Builder clientId(String name) {
            clientId = Objects.requireNonNull(name);
            return this;
        }

        /**
         * How long an ack waits to ride on the next pull; default 20 ms. A longer wait saves
         * requests when handlers are slow.
         */
        public Builder ackLinger(Duration time) {
            ackLinger = Times.checked("ackLinger", time);
            return this;
        }

        /** How long handlers may continue after {@code stop}; default 30 s. */
        public Builder drainTimeout(Duration time) {
            drainTimeout = Times.checked("drainTimeout", time);
            return this;
        }

        /**
         * Runs the handlers, on virtual or other threads; not shut down by the consumer. Default:
         * up to {@code concurrency} daemon threads.
         */
        public Builder executor(Executor threads) {
            executor = Objects.requireNonNull(threads);
            return this;
        }

        /**
         * Whether to interrupt a handler's thread when its lease is lost or the drain times out;
         * default true. {@link Message#leaseLost} and {@link Message#onLeaseLost} work in any case.
         */
        public Builder interruptHandlers(boolean on) {
            interruptHandlers = on;
            return this;
        }

        /**
         * Whether to drain when the JVM shuts down, for example on SIGTERM; default true. Turn it
         * off if a framework closes the consumer at that time: hooks run in parallel. A handler
         * that calls System.exit delays it by the drain timeout, since it never ends.
         */
        public Builder drainOnShutdown(boolean on) {
            drainOnShutdown = on;
            return this;
        }

        /** Adds an observer. */
        public Builder observer(Observer observer) {
            observers.add(Objects.requireNonNull(observer));
            return this;
        }

        /** Connects handlers to traces. */
        public Builder trace(TraceHook hook) {
            trace = Objects.requireNonNull(hook);
            return this;
        }

        /** Builds the consumer, which does nothing before it is started. */
        public OrderlaneConsumer build() {
            if (group == null || group.isEmpty()) {
                throw new IllegalArgumentException(
                        "group is empty: expected the name of a consumer group");
            }
            long runs = maxRun == 1 ? 0 : 2L * maxRun; // one in progress, and one next
            int room = (int) Math.min(Math.max(concurrency, runs), Integer.MAX_VALUE);
            ConsumerSettings settings =
                    new ConsumerSettings(
                            addresses,
                            group,
                            topics.isEmpty() ? null : List.copyOf(topics),
                            clientId == null || clientId.isEmpty()
                                    ? ClientNames.clientId()
                                    : clientId,
                            concurrency,
                            prefetch >= 0 ? prefetch : room,
                            maxRun,
                            ackLinger,
                            requestTimeout,
                            drainTimeout,
                            token,
                            tls,
                            executor,
                            interruptHandlers,
                            drainOnShutdown,
                            List.copyOf(observers),
                            trace,
                            log);
            return new OrderlaneConsumer(settings);
        }

        private static int atLeast(int least, String name, int value) {
            if (value < least) {
                throw new IllegalArgumentException(
                        name + " is " + value + ": expected at least " + least);
            }
            return value;
        }
    }
}
