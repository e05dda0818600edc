package io.github.orderlane.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.helpers.NOPLogger;

/** Mistakes of the application's code. */
@Timeout(60)
class MishapsTest {
    private FakeProxy proxy;

    @BeforeEach
    void open() throws Exception {
        proxy = new FakeProxy();
    }

    @AfterEach
    void close() throws Exception {
        proxy.close();
    }

    private OrderlaneConsumer.Builder builder() {
        return OrderlaneConsumer.builder(proxy.address())
                .group("g")
                .concurrency(1)
                .drainTimeout(Duration.ofMillis(500))
                .logger(NOPLogger.NOP_LOGGER);
    }

    @Test
    void errorsOfObserversAndHooksAreLoggedLikeExceptions() throws Exception {
        Observer observer =
                new Observer() {
                    @Override
                    public void onHandleStart(Message message) {
                        throw new AssertionError("start");
                    }

                    @Override
                    public void onPulled(int messages) {
                        throw new AssertionError("pulled");
                    }
                };
        TraceHook hook =
                new TraceHook() {
                    @Override
                    public Scope incoming(Message message) {
                        if (message.leaseId() == 1) {
                            throw new AssertionError("incoming");
                        }
                        return () -> {
                            throw new AssertionError("failed on purpose");
                        };
                    }
                };
        proxy.refuseToExtend(3);
        try (OrderlaneConsumer consumer = builder().observer(observer).trace(hook).build()) {
            consumer.start(
                    message -> {
                        message.onLeaseLost(
                                () -> {
                                    throw new AssertionError("told");
                                });
                        while (message.leaseId() == 3 && !Thread.currentThread().isInterrupted()) {
                            Thread.onSpinWait();
                        }
                        return Outcome.ok();
                    });
            proxy.put("a", "b", "c", "d");
            proxy.until(() -> proxy.verdicts().size() == 4);
            consumer.stop();
            consumer.awaitTermination();
        }
        assertEquals(List.of("1 ok", "2 ok", "3 ok", "4 ok"), proxy.verdicts());
    }

    @Test
    void leftoverInterruptDoesNotReachTheNextMessage() throws Exception {
        try (OrderlaneConsumer consumer = builder().build()) {
            consumer.start(
                    message -> {
                        Thread.sleep(1);
                        Thread.currentThread().interrupt();
                        return Outcome.ok();
                    });
            proxy.put("a", "b");
            proxy.until(() -> proxy.verdicts().size() == 2);
        }
        assertEquals(List.of("1 ok", "2 ok"), proxy.verdicts());
    }

    @Test
    void sendAfterCloseIsRefused() throws Exception {
        AtomicReference<OrderlaneProducer> closing = new AtomicReference<>();
        TraceHook hook =
                new TraceHook() {
                    @Override
                    public Map<String, String> outgoing(String topic) {
                        closing.get().close(); // as another thread may
                        return Map.of();
                    }
                };
        try (ServerSocket server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
                OrderlaneProducer producer =
                        OrderlaneProducer.builder("127.0.0.1:" + server.getLocalPort())
                                .sendTimeout(Duration.ofMillis(50))
                                .logger(NOPLogger.NOP_LOGGER)
                                .trace(hook)
                                .build()) {
            closing.set(producer);
            OutgoingMessage message = OutgoingMessage.to("t").body("b").build();
            assertThrows(IllegalStateException.class, () -> producer.send(message));
            server.setSoTimeout(50);
            assertThrows(SocketTimeoutException.class, server::accept);
        }
    }
}
