package orderlane.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Executor;
import orderlane.client.internal.ClientNames;
import orderlane.client.internal.ConsumerEngine;
import orderlane.client.internal.ConsumerSettings;
import orderlane.client.internal.Times;
import orderlane.client.internal.Work;

/**
 * Pulls the messages of a consumer group, in order by key, and acks what was handled.
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
 * <p>Messages of different keys are handled at the same time, those of one key one after the other.
 * An exception in the handler means retry. Leases are extended by themselves.
 */
public final class OrderlaneConsumer implements AutoCloseable {
    private final ConsumerEngine engine;

    private OrderlaneConsumer(ConsumerSettings settings) {
        this.engine = new ConsumerEngine(settings);
    }

    /**
     * {@code servers}: {@code host:port} each, or several separated by commas; the next is tried
     * when one fails. Throws IllegalArgumentException for what is no address.
     */
    public static Builder builder(String... servers) {
        return new Builder(List.of(servers));
    }

    /** Begins to pull, and returns. A consumer is started once. */
    public void start(MessageHandler handler) {
        engine.start(Work.of(Objects.requireNonNull(handler)));
    }

    /**
     * As start, with the messages of one key that came together: {@link Builder#maxRun} at most,
     * which is 1 unless said otherwise. A batch counts once for the concurrency.
     */
    public void startBatches(BatchHandler handler) {
        engine.start(Work.of(Objects.requireNonNull(handler)));
    }

    /**
     * Pulls no more: what waits is given back, what is handled is waited for, up to the drain
     * time-out. A second call waits no longer: handlers are interrupted, and what they had is given
     * back if that ends them. Returns at once.
     */
    public void stop() {
        engine.stop();
    }

    /**
     * Waits until the consumer has ended: stopped and drained, or failed. Throws RefusedException
     * and others that no retry can help.
     */
    public void awaitTermination() throws InterruptedException {
        engine.awaitTermination(Duration.ofDays(Integer.MAX_VALUE));
    }

    /** As awaitTermination; returns false if it has not ended within {@code limit}. */
    public boolean awaitTermination(Duration limit) throws InterruptedException {
        return engine.awaitTermination(limit);
    }

    /**
     * Stops, and returns when the consumer has ended. An interrupt makes it hurry, as a second
     * {@link #stop} does. In a handler of this consumer it does not wait.
     */
    @Override
    public void close() {
        engine.close();
    }

    @Override
    public String toString() {
        return engine.toString();
    }

    /**
     * What a consumer can be told. Methods throw IllegalArgumentException for what makes no sense.
     */
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
        private boolean drainOnShutdown;
        private TraceHook trace = new TraceHook() {};

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
            if (name.isEmpty()) {
                throw new IllegalArgumentException(
                        "a topic's name is empty; give none to get every topic of the group");
            }
            topics.add(name);
            return this;
        }

        /** Adds topics. */
        public Builder topics(List<String> names) {
            names.forEach(this::topic);
            return this;
        }

        /** Keys handled at a time; default 8. */
        public Builder concurrency(int keys) {
            concurrency = atLeast(1, "concurrency", keys);
            return this;
        }

        /**
         * Messages that wait here meanwhile; default: as many as {@code concurrency}, with runs
         * twice {@code maxRun} if that is more. 0 leaves every waiting message to other clients.
         */
        public Builder prefetch(int messages) {
            prefetch = atLeast(0, "prefetch", messages);
            return this;
        }

        /**
         * So many consecutive messages of one key may come together, to be handled one after the
         * other, or as one batch; default 1. More makes a busy key faster: it needs no round trip a
         * message. At the first that fails those behind it go back, unhandled and uncounted.
         */
        public Builder maxRun(int messages) {
            maxRun = atLeast(1, "maxRun", messages);
            return this;
        }

        /** Shown to operators; default {@code host@process-1f2e}. */
        public Builder clientId(String name) {
            clientId = Objects.requireNonNull(name);
            return this;
        }

        /**
         * How long an ack waits for the next pull to ride on; default 20 ms. More saves requests
         * when handlers are slow.
         */
        public Builder ackLinger(Duration time) {
            ackLinger = Times.checked("ackLinger", time);
            return this;
        }

        /** How long handlers may go on after {@code stop}; default 30 s. */
        public Builder drainTimeout(Duration time) {
            drainTimeout = Times.checked("drainTimeout", time);
            return this;
        }

        /**
         * Runs the handlers, on threads of its own, virtual ones or others; it is not shut down
         * here. Default: up to {@code concurrency} daemon threads.
         */
        public Builder executor(Executor threads) {
            executor = Objects.requireNonNull(threads);
            return this;
        }

        /**
         * Whether a handler's thread is interrupted when its lease is lost, and when the time to
         * drain is up; default true. {@link Message#leaseLost} and {@link Message#onLeaseLost} tell
         * it in any case.
         */
        public Builder interruptHandlers(boolean on) {
            interruptHandlers = on;
            return this;
        }

        /**
         * Whether the consumer drains when the JVM is asked to end, as by SIGTERM; default false.
         */
        public Builder drainOnShutdown(boolean on) {
            drainOnShutdown = on;
            return this;
        }

        /** Adds one who looks on. */
        public Builder observer(Observer observer) {
            observers.add(Objects.requireNonNull(observer));
            return this;
        }

        /** Connects handlers to traces. */
        public Builder trace(TraceHook hook) {
            trace = Objects.requireNonNull(hook);
            return this;
        }

        /** The consumer; it does nothing before it is started. */
        public OrderlaneConsumer build() {
            if (group == null || group.isEmpty()) {
                throw new IllegalArgumentException(
                        "group is empty: expected the name of a consumer group");
            }
            int runs = maxRun == 1 ? 0 : 2 * maxRun; // one at work, and room for the next
            ConsumerSettings settings =
                    new ConsumerSettings(
                            addresses,
                            group,
                            topics.isEmpty() ? null : List.copyOf(topics),
                            clientId == null ? ClientNames.clientId() : clientId,
                            concurrency,
                            prefetch >= 0 ? prefetch : Math.max(concurrency, runs),
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
