package io.github.orderlane.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.Logger;
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

    /** An error whose message is computed, and fails. */
    private static final class Unreadable extends RuntimeException {
        private static final long serialVersionUID = 1;

        @Override
        public String getMessage() {
            throw new IllegalStateException("no bundle for this language");
        }
    }

    /** A logger that shows all it is given as text, as logging frameworks do. */
    private static Logger showing(List<String> shown) {
        Class<?>[] logger = {Logger.class};
        return (Logger)
                Proxy.newProxyInstance(
                        Logger.class.getClassLoader(),
                        logger,
                        (proxy, method, arguments) -> {
                            shown.add(Arrays.deepToString(arguments));
                            return null;
                        });
    }

    @Test
    void anErrorWithoutReadableTextIsRetriedAndEndsNothing() throws Exception {
        List<String> shown = Collections.synchronizedList(new ArrayList<>());
        Observer observer =
                new Observer() {
                    @Override
                    public void onHandleStart(Message message) {
                        throw new Unreadable();
                    }
                };
        try (OrderlaneConsumer consumer =
                builder().logger(showing(shown)).observer(observer).build()) {
            consumer.start(
                    message -> {
                        if (message.leaseId() == 1) {
                            throw new Unreadable();
                        }
                        if (message.leaseId() == 2) {
                            throw new StackOverflowError();
                        }
                        return Outcome.ok();
                    });
            proxy.put("a", "b", "c");
            proxy.until(() -> proxy.verdicts().size() == 3);
            consumer.stop();
            consumer.awaitTermination();
        }
        String reason = "Unreadable: (its text cannot be shown: IllegalStateException)";
        assertEquals(
                List.of("1 retry " + reason, "2 retry StackOverflowError", "3 ok"),
                proxy.verdicts());
        assertTrue(shown.toString().contains("handling {} failed; the message will be retried"));
        assertTrue(shown.toString().contains(reason), shown.toString());
    }

    @Test
    void aLoggerThatFailsEndsNothing() throws Exception {
        Logger failing =
                (Logger)
                        Proxy.newProxyInstance(
                                Logger.class.getClassLoader(),
                                new Class<?>[] {Logger.class},
                                (proxy, method, arguments) -> {
                                    throw new IllegalStateException("the disk is full");
                                });
        try (OrderlaneConsumer consumer = builder().logger(failing).build()) {
            consumer.start(
                    message -> {
                        if (message.leaseId() == 1) {
                            throw new IOException("no");
                        }
                        return Outcome.ok();
                    });
            proxy.put("a", "b");
            proxy.until(() -> proxy.verdicts().size() == 2);
            consumer.stop();
            consumer.awaitTermination();
        }
        assertEquals(List.of("1 retry IOException: no", "2 ok"), proxy.verdicts());
    }

    @Test
    void aRejectionWithoutReasonIsARejection() throws Exception {
        try (OrderlaneConsumer consumer = builder().build()) {
            consumer.start(message -> Outcome.reject(new IOException().getMessage()));
            proxy.put("a");
            proxy.until(() -> proxy.verdicts().size() == 1);
        }
        assertEquals(List.of("1 reject "), proxy.verdicts());
    }

    @Test
    void withoutFurtherThreadsTheConsumerEndsAndLosesNoVerdict() throws Exception {
        AtomicInteger started = new AtomicInteger();
        Executor exhausted =
                task -> {
                    if (started.getAndIncrement() > 0) {
                        throw new OutOfMemoryError("unable to create native thread");
                    }
                    new Thread(task).start();
                };
        proxy.put("a", "b"); // one pull brings both
        try (OrderlaneConsumer consumer = builder().concurrency(2).executor(exhausted).build()) {
            consumer.start(message -> Outcome.ok());
            Throwable ended =
                    assertThrows(IllegalStateException.class, consumer::awaitTermination);
            assertTrue(ended.getMessage().contains("the executor refuses handlers: unable"));
        }
        assertEquals(List.of("1 ok", "2 defer"), proxy.verdicts());
    }

    @Test
    void aTaskThatTheExecutorDropsIsStartedAgainWithAWarning() throws Exception {
        AtomicInteger started = new AtomicInteger();
        Executor dropping =
                task -> {
                    if (started.getAndIncrement() > 0) {
                        new Thread(task).start();
                    }
                };
        List<String> warnings = Collections.synchronizedList(new ArrayList<>());
        Logger logger =
                (Logger)
                        Proxy.newProxyInstance(
                                Logger.class.getClassLoader(),
                                new Class<?>[] {Logger.class},
                                (proxy, method, arguments) -> {
                                    if (method.getName().equals("warn")) {
                                        warnings.add(arguments[0].toString());
                                    }
                                    return null;
                                });
        proxy.put("a", "b");
        try (OrderlaneConsumer consumer = builder().executor(dropping).logger(logger).build()) {
            consumer.start(message -> Outcome.ok());
            proxy.until(() -> proxy.verdicts().size() == 2);
        }
        assertEquals(
                List.of(
                        "the executor accepted a handler {} ago and has not begun it: it is busy,"
                                + " or has dropped it; starting it again"),
                warnings);
    }

    @Test
    void aTaskThatTheExecutorDelaysRunsNoFurtherHandler() throws Exception {
        List<Runnable> delayed = Collections.synchronizedList(new ArrayList<>());
        Executor busy =
                task -> {
                    if (delayed.size() < 2) {
                        delayed.add(task);
                    } else {
                        new Thread(task).start();
                    }
                };
        AtomicInteger together = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        proxy.put("a", "b", "c");
        try (OrderlaneConsumer consumer = builder().executor(busy).build()) {
            consumer.start(
                    message -> {
                        most.accumulateAndGet(together.incrementAndGet(), Math::max);
                        Thread.sleep(20);
                        together.decrementAndGet();
                        return Outcome.ok();
                    });
            proxy.until(() -> delayed.size() == 2);
            delayed.forEach(task -> new Thread(task).start());
            proxy.until(() -> proxy.verdicts().size() == 3);
        }
        assertEquals(1, most.get());
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void withoutThreadsForTheStartTheConsumerEnds(int refused) throws Exception {
        try (OrderlaneConsumer consumer = builder().drainOnShutdown(false).build();
                ScarceThreads scarce = new ScarceThreads(refused)) {
            String text = "a thread could not be started: unable to create native thread";
            Throwable failed =
                    assertThrows(
                            IllegalStateException.class,
                            () -> consumer.start(message -> Outcome.ok()));
            assertEquals(text, failed.getMessage());
            Duration limit = Duration.ofSeconds(20);
            Throwable ended =
                    assertThrows(
                            IllegalStateException.class, () -> consumer.awaitTermination(limit));
            assertEquals("the consumer failed: " + text, ended.getMessage());
            assertTrue(scarce.ranOut());
        }
    }

    @Test
    void withoutAThreadThatSettlesTheConsumerReleasesItsMessages() throws Exception {
        proxy.put("a", "b"); // one pull brings both
        OrderlaneConsumer.Builder builder = builder().concurrency(2).drainOnShutdown(false);
        try (OrderlaneConsumer consumer = builder.build();
                ScarceThreads scarce = new ScarceThreads(3)) { // the drain, pulls, settles
            consumer.start(message -> Outcome.ok());
            Throwable ended =
                    assertThrows(IllegalStateException.class, consumer::awaitTermination);
            assertEquals(
                    "the consumer failed: a thread could not be started:"
                            + " unable to create native thread",
                    ended.getMessage());
            assertTrue(scarce.ranOut());
        }
        assertEquals(2, proxy.verdicts().size());
    }

    @Test
    void noCallbackForALostLeaseRunsAfterItsHandler() throws Exception {
        CountDownLatch told = new CountDownLatch(1);
        CountDownLatch ended = new CountDownLatch(1);
        AtomicBoolean late = new AtomicBoolean();
        Observer observer =
                new Observer() {
                    @Override
                    public void onHandleEnd(Message message, Outcome outcome) {
                        ended.countDown();
                    }
                };
        proxy.refuseToExtend(1);
        try (OrderlaneConsumer consumer =
                builder().interruptHandlers(false).observer(observer).build()) {
            consumer.start(
                    message -> {
                        message.onLeaseLost(
                                () -> {
                                    told.countDown();
                                    try {
                                        late.set(ended.await(300, TimeUnit.MILLISECONDS));
                                    } catch (InterruptedException error) {
                                        Thread.currentThread().interrupt();
                                    }
                                });
                        told.await();
                        return Outcome.ok();
                    });
            proxy.put("a");
            ended.await();
        }
        assertFalse(late.get());
    }

    @Test
    void anEmptyClientIdCountsAsNone() throws Exception {
        OrderlanePuller.Builder puller = OrderlanePuller.builder(proxy.address()).group("g");
        try (OrderlanePuller each = puller.clientId("").build();
                OrderlaneConsumer consumer = builder().clientId("").build()) {
            each.pull(1, Duration.ZERO);
            assertTrue(proxy.client().contains("@"), proxy.client());
            consumer.start(message -> Outcome.ok());
            proxy.put("a");
            proxy.until(() -> !proxy.verdicts().isEmpty());
            assertTrue(proxy.client().contains("@"), proxy.client());
        }
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
