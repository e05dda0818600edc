package io.github.orderlane.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.gen.consumer.PullException;
import java.io.BufferedReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.helpers.NOPLogger;

/** The Java parts of a consumer: threads, interrupts, executors, hooks. */
@Timeout(60)
class ConsumerTest {
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
                .requestTimeout(Duration.ofSeconds(2))
                .logger(NOPLogger.NOP_LOGGER);
    }

    private static void forever(CountDownLatch begun) throws InterruptedException {
        begun.countDown();
        new CountDownLatch(1).await();
    }

    @Test
    void outcomesAndExceptionsReachTheProxy() throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        Observer observer =
                new Observer() {
                    @Override
                    public void onHandleEnd(Message message, Outcome outcome) {
                        seen.add(message.leaseId() + " " + outcome.kind());
                        throw new IllegalStateException("an observer must be harmless");
                    }
                };
        try (OrderlaneConsumer consumer = builder().observer(observer).build()) {
            consumer.start(
                    message ->
                            switch ((int) message.leaseId()) {
                                case 1 -> Outcome.ok();
                                case 2 -> Outcome.reject("bad");
                                case 3 -> Outcome.defer();
                                case 4 -> null;
                                case 5 -> throw new AssertionError("no");
                                default -> throw new java.io.IOException("checked");
                            });
            proxy.put("a", "b", "c", "d", "e", "f");
            proxy.until(() -> proxy.verdicts().size() == 6);
            consumer.stop();
            assertTrue(consumer.awaitTermination(Duration.ofSeconds(30)));
        }
        assertEquals(
                List.of(
                        "1 ok",
                        "2 reject bad",
                        "3 defer",
                        "4 retry NullPointerException: the handler returned null, not an Outcome",
                        "5 retry AssertionError: no",
                        "6 retry IOException: checked"),
                proxy.verdicts());
        assertEquals(
                List.of("1 ok", "2 reject", "3 defer", "4 retry", "5 retry", "6 retry"),
                seen.stream().sorted().toList());
    }

    @Test
    void batchEndsAtTheFirstUnmarkedMessage() throws Exception {
        try (OrderlaneConsumer consumer = builder().maxRun(4).concurrency(1).build()) {
            consumer.startBatches(
                    batch -> {
                        batch.ok(batch.messages().get(1));
                        assertEquals(2, batch.done());
                        throw new IllegalStateException("third");
                    });
            proxy.put("k", "k", "k", "k");
            proxy.until(() -> proxy.verdicts().size() == 4);
        }
        assertEquals(
                List.of("1 ok", "2 ok", "3 retry IllegalStateException: third", "4 defer"),
                proxy.verdicts());
    }

    @Test
    void manyThreadsKeepTheOrderOfEachKey() throws Exception {
        int keys = 20;
        int each = 60;
        List<String> wrong = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger[] inside = new AtomicInteger[keys];
        AtomicLong[] last = new AtomicLong[keys];
        for (int key = 0; key < keys; key++) {
            inside[key] = new AtomicInteger();
            last[key] = new AtomicLong();
        }
        try (OrderlaneConsumer consumer = builder().concurrency(12).prefetch(40).build()) {
            consumer.start(
                    message -> {
                        int key = message.orderKey().orElseThrow()[0];
                        if (inside[key].incrementAndGet() > 1) {
                            wrong.add(message + " during the handling of another of its key");
                        }
                        if (last[key].getAndSet(message.offset()) > message.offset()) {
                            wrong.add(message + " too late");
                        }
                        if (message.offset() % 7 == 0) {
                            Thread.sleep(1);
                        }
                        inside[key].decrementAndGet();
                        return Outcome.ok();
                    });
            for (int round = 0; round < each; round++) {
                String[] all = new String[keys];
                for (int key = 0; key < keys; key++) {
                    all[key] = String.valueOf((char) key);
                }
                proxy.put(all);
            }
            proxy.until(() -> proxy.verdicts().size() == keys * each);
        }
        assertEquals(List.of(), wrong);
    }

    @Test
    void sigtermDrainsIfEnabled() throws Exception {
        Process process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin/java").toString(),
                                "-Xmx32m", "-XX:TieredStopAtLevel=1",
                                "-cp", System.getProperty("java.class.path"),
                                Slow.class.getName(), proxy.address())
                        .redirectErrorStream(true)
                        .start();
        proxy.put("a");
        try (BufferedReader lines = process.inputReader()) {
            while (!"begun".equals(lines.readLine())) {
                assertTrue(process.isAlive());
            }
            process.destroy(); // SIGTERM
            assertTrue(process.waitFor(30, TimeUnit.SECONDS));
        } finally {
            process.destroyForcibly();
        }
        assertEquals(List.of("1 ok"), proxy.verdicts());
    }

    /** A consumer that is stopped during handling. */
    static final class Slow {
        private Slow() {}

        public static void main(String[] servers) throws InterruptedException {
            OrderlaneConsumer consumer =
                    OrderlaneConsumer.builder(servers).group("g").build();
            consumer.start(
                    message -> {
                        System.out.println("begun");
                        Thread.sleep(500);
                        return Outcome.ok();
                    });
            consumer.awaitTermination();
        }
    }

    @Test
    void lostLeaseInterruptsItsHandlerAndNothingElse() throws Exception {
        AtomicInteger interrupted = new AtomicInteger();
        AtomicInteger told = new AtomicInteger();
        AtomicBoolean clean = new AtomicBoolean();
        proxy.refuseToExtend(1);
        try (OrderlaneConsumer consumer = builder().concurrency(1).prefetch(1).build()) {
            consumer.start(
                    message -> {
                        if (message.leaseId() > 1) {
                            clean.set(!Thread.currentThread().isInterrupted());
                            return Outcome.ok();
                        }
                        message.onLeaseLost(told::incrementAndGet);
                        while (!Thread.currentThread().isInterrupted()) {
                            LockSupport.parkNanos(1_000_000);
                        }
                        assertTrue(message.leaseLost());
                        interrupted.incrementAndGet();
                        message.onLeaseLost(told::incrementAndGet); // runs at once
                        return Outcome.ok();
                    });
            proxy.put("a", "a");
            proxy.until(() -> proxy.verdicts().contains("2 ok"));
        }
        assertEquals(1, interrupted.get());
        assertEquals(2, told.get());
        assertTrue(clean.get());
    }

    @Test
    void interruptsCanBeTurnedOff() throws Exception {
        CountDownLatch lost = new CountDownLatch(1);
        AtomicBoolean interrupted = new AtomicBoolean();
        proxy.refuseToExtend(1);
        try (OrderlaneConsumer consumer = builder().interruptHandlers(false).build()) {
            consumer.start(
                    message -> {
                        message.onLeaseLost(lost::countDown);
                        lost.await();
                        interrupted.set(Thread.currentThread().isInterrupted());
                        return Outcome.ok();
                    });
            proxy.put("a");
            proxy.until(() -> proxy.verdicts().contains("1 ok"));
        }
        assertFalse(interrupted.get());
    }

    @Test
    void handlersRunOnTheGivenExecutor() throws Exception {
        ExecutorService threads =
                Executors.newFixedThreadPool(2, task -> new Thread(task, "mine"));
        List<String> names = Collections.synchronizedList(new ArrayList<>());
        try (OrderlaneConsumer consumer = builder().concurrency(4).executor(threads).build()) {
            consumer.start(
                    message -> {
                        names.add(Thread.currentThread().getName());
                        return Outcome.ok();
                    });
            proxy.put("a", "b", "c", "d", "e");
            proxy.until(() -> proxy.verdicts().size() == 5);
        }
        assertEquals(Collections.nCopies(5, "mine"), names);
        assertFalse(threads.isShutdown());
        threads.shutdownNow();
        assertTrue(threads.awaitTermination(10, TimeUnit.SECONDS));
    }

    @Test
    void unusableExecutorsEndTheConsumerWithAnExplanation() throws Exception {
        Executor refusing =
                task -> {
                    throw new RejectedExecutionException("full");
                };
        Executor direct = Runnable::run;
        for (Executor executor : List.of(refusing, direct)) {
            try (OrderlaneConsumer consumer = builder().executor(executor).build()) {
                consumer.start(message -> Outcome.ok());
                proxy.put("a");
                var error = assertThrows(IllegalStateException.class, consumer::awaitTermination);
                assertTrue(error.getMessage().contains("the executor refuses handlers"));
            }
        }
        proxy.until(() -> proxy.verdicts().equals(List.of("1 defer", "2 defer")));
    }

    @Test
    void refusalEndsTheConsumerAndIsThrown() throws Exception {
        proxy.refusePulls(new PullException(404, "no group g"));
        try (OrderlaneConsumer consumer = builder().build()) {
            consumer.start(message -> Outcome.ok());
            var error = assertThrows(RefusedException.class, consumer::awaitTermination);
            assertEquals(404, error.code());
            assertTrue(error.getMessage().endsWith("refused pull: no group g"));
        }
    }

    @Test
    void drainTimeoutReleasesInterruptedMessages() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        OrderlaneConsumer consumer = builder().drainTimeout(Duration.ofMillis(50)).build();
        consumer.start(
                message -> {
                    forever(begun);
                    return Outcome.ok();
                });
        proxy.put("a");
        assertTrue(begun.await(40, TimeUnit.SECONDS));
        consumer.close();
        assertEquals(List.of("1 defer"), proxy.verdicts());
    }

    @Test
    void interruptedCloseDoesNotWaitAndKeepsTheInterrupt() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        OrderlaneConsumer consumer = builder().build(); // drain timeout 30 s
        consumer.start(
                message -> {
                    forever(begun);
                    return Outcome.ok();
                });
        proxy.put("a");
        assertTrue(begun.await(40, TimeUnit.SECONDS));
        Thread.currentThread().interrupt();
        consumer.close();
        assertTrue(Thread.interrupted());
        assertEquals(List.of("1 defer"), proxy.verdicts());
    }

    @Test
    void handlerMayCloseItsConsumer() throws Exception {
        OrderlaneConsumer consumer = builder().build();
        consumer.start(
                message -> {
                    consumer.close();
                    return Outcome.ok();
                });
        proxy.put("a");
        consumer.awaitTermination();
        assertEquals(List.of("1 ok"), proxy.verdicts());
    }

    @Test
    void consumerIsUsedOnce() {
        OrderlaneConsumer started = builder().build();
        started.start(message -> Outcome.ok());
        assertThrows(IllegalStateException.class, () -> started.start(message -> Outcome.ok()));
        started.close();
        OrderlaneConsumer closed = builder().build();
        closed.close();
        assertThrows(IllegalStateException.class, () -> closed.start(message -> Outcome.ok()));
        assertTrue(closed.toString().startsWith("<OrderlaneConsumer <Session g"));
    }

    @Test
    void traceStartsAndEndsOnTheHandlersThread() throws Exception {
        List<String> told = Collections.synchronizedList(new ArrayList<>());
        TraceHook hook =
                new TraceHook() {
                    @Override
                    public Scope incoming(Message message) {
                        told.add("begin " + Thread.currentThread().getId());
                        return () -> told.add("end " + Thread.currentThread().getId());
                    }
                };
        try (OrderlaneConsumer consumer = builder().trace(hook).build()) {
            consumer.start(
                    message -> {
                        told.add("handle " + Thread.currentThread().getId());
                        return Outcome.ok();
                    });
            proxy.put("a");
            proxy.until(() -> proxy.verdicts().contains("1 ok"));
        }
        String id = told.get(0).replace("begin ", "");
        assertEquals(List.of("begin " + id, "handle " + id, "end " + id), told);
    }

    @Test
    void pullerRefusesToExtendByLessThanOneMillisecond() throws Exception {
        proxy.put("a");
        try (OrderlanePuller puller =
                OrderlanePuller.builder(proxy.address()).group("g").build()) {
            Message message = puller.pull(1, Duration.ofMillis(100)).get(0);
            // The proxy would end the lease, and the answer would say that it is held.
            String refusal =
                    assertThrows(
                                    IllegalArgumentException.class,
                                    () -> puller.extend(message, Duration.ofNanos(999_999)))
                            .getMessage();
            assertEquals("time is PT0.000999999S: expected at least 1 ms", refusal);
            assertTrue(puller.extend(message, Duration.ofMillis(1)));
        }
    }

    @Test
    void pullerMakesSingleCalls() throws Exception {
        proxy.put("a", "b");
        try (OrderlanePuller puller =
                OrderlanePuller.builder("127.0.0.1:1", proxy.address()).group("g").build()) {
            List<Message> messages = puller.pull(5, Duration.ofMillis(100));
            assertEquals(2, messages.size());
            assertTrue(puller.settle(messages.get(0), Outcome.ok()));
            assertTrue(puller.extend(messages.get(1), Duration.ofSeconds(5)));
            assertTrue(messages.get(1).timeLeft().toMillis() > 3_000);
            proxy.refuseToExtend(2);
            assertFalse(puller.extend(messages.get(1), Duration.ofSeconds(5)));
            assertTrue(messages.get(1).leaseLost());
            proxy.close();
            assertInstanceOf(
                    ConnectionLostException.class,
                    assertThrows(
                            OrderlaneException.class, () -> puller.pull(1, Duration.ZERO)));
        }
        assertEquals(List.of("1 ok"), proxy.verdicts());
    }
}
