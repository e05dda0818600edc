package io.github.orderlane.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.gen.producer.Message;
import io.github.orderlane.client.gen.producer.ProducerService;
import io.github.orderlane.client.gen.producer.Result;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.helpers.NOPLogger;

/** Calls that do not wait, among those that do. */
@Timeout(60)
class ProducerTest {
    /** A code after which no retry helps. */
    private static final int ILLEGAL = 11;

    private final Store store = new Store();
    private FakeServer server;
    private OrderlaneProducer producer;

    @BeforeEach
    void open() throws Exception {
        server =
                new FakeServer(
                        new ProducerService.Processor<>(
                                PartOf.service(ProducerService.Iface.class, store)));
        producer =
                OrderlaneProducer.builder(server.address()).logger(NOPLogger.NOP_LOGGER).build();
    }

    @AfterEach
    void close() throws Exception {
        store.gate.countDown();
        producer.close();
        server.close();
    }

    /** Keeps the first message until its gate opens; refuses bodies with "bad". */
    private static final class Store {
        final CountDownLatch gate = new CountDownLatch(1);
        final List<String> bodies = new ArrayList<>();

        public Result sendSync(Message message, long timeout) {
            try {
                gate.await();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            String body = StandardCharsets.UTF_8.decode(message.bufferForBody()).toString();
            synchronized (bodies) {
                bodies.add(body);
            }
            Result result = new Result();
            result.setCode(body.contains("bad") ? ILLEGAL : 0);
            result.setMsg(body);
            return result;
        }

        List<String> stored() {
            synchronized (bodies) {
                return List.copyOf(bodies);
            }
        }
    }

    private static OutgoingMessage message(String body) {
        return OutgoingMessage.to("orders").key("a").body(body).build();
    }

    private static void untilItWaits(Thread thread) throws InterruptedException {
        while (thread.getState() != Thread.State.WAITING) {
            Thread.sleep(1);
        }
    }

    @Test
    void callsOfBothKindsAreSentInTheirOrder() throws Exception {
        CompletableFuture<String> first = producer.sendAsync(message("1"));
        CompletableFuture<String> second = producer.sendAsync(message("2"));
        Thread waiting = new Thread(() -> producer.send(message("3")));
        waiting.start();
        untilItWaits(waiting);
        CompletableFuture<String> fourth = producer.sendAsync(message("4"));
        assertEquals(List.of(), store.stored());
        store.gate.countDown();
        waiting.join();
        assertEquals(32, fourth.get().length());
        assertEquals(List.of("1", "2", "3", "4"), store.stored());
        assertTrue(first.isDone() && second.isDone());
    }

    @Test
    void refusedMessageHoldsBackThoseOfItsKeyThatWait() {
        CompletableFuture<String> bad = producer.sendAsync(message("bad"));
        CompletableFuture<String> behind = producer.sendAsync(message("behind"));
        store.gate.countDown();
        for (CompletableFuture<String> each : List.of(bad, behind)) {
            Throwable cause = assertThrows(CompletionException.class, each::join).getCause();
            SendFailedException failed = assertInstanceOf(SendFailedException.class, cause);
            assertEquals(1, failed.failures().size());
        }
        assertEquals(List.of("bad"), store.stored());
        producer.sendAsync(message("later")).join();
        assertEquals(List.of("bad", "later"), store.stored());
    }

    /** On the producer's own thread they would wait for a call that needs this thread. */
    @Test
    void dependentsMayUseTheProducer() {
        CompletableFuture<String> sent =
                producer.sendAsync(message("1")).thenApply(id -> producer.send(message("3")));
        producer.sendAsync(message("2"));
        store.gate.countDown();
        sent.join();
        assertEquals(List.of("1", "2", "3"), store.stored());
        producer.sendAsync(message("4")).thenRun(producer::close).join();
    }

    @Test
    void withoutAThreadTheFutureFailsAndLaterCallsAreSent() throws Exception {
        store.gate.countDown();
        try (ScarceThreads scarce = new ScarceThreads(1)) {
            CompletableFuture<String> refused = producer.sendAsync(message("1"));
            Throwable cause =
                    assertThrows(ExecutionException.class, () -> refused.get(20, TimeUnit.SECONDS))
                            .getCause();
            String text = "no thread could be started to send it: OutOfMemoryError: unable to";
            assertInstanceOf(SendFailedException.class, cause);
            assertTrue(cause.getMessage().contains(text), cause.getMessage());
            assertTrue(scarce.ranOut());
        }
        producer.sendAsync(message("2")).get(20, TimeUnit.SECONDS);
        assertEquals(List.of("2"), store.stored());
    }

    /** Where futures complete on a thread each, as with one or two processors. */
    @Test
    void withoutFurtherThreadsTheFutureCompletes() throws Exception {
        store.gate.countDown();
        try (ScarceThreads scarce = new ScarceThreads(2)) {
            producer.sendAsync(message("1")).get(20, TimeUnit.SECONDS);
            assertTrue(scarce.ranOut() || ForkJoinPool.getCommonPoolParallelism() > 1);
        }
        assertEquals(List.of("1"), store.stored());
    }

    @Test
    void traceHookRunsOnTheCallersThread() {
        AtomicReference<Thread> asked = new AtomicReference<>();
        TraceHook hook =
                new TraceHook() {
                    @Override
                    public Map<String, String> outgoing(String topic) {
                        asked.set(Thread.currentThread());
                        return Map.of();
                    }
                };
        store.gate.countDown();
        try (OrderlaneProducer traced =
                OrderlaneProducer.builder(server.address()).trace(hook).build()) {
            traced.sendAsync(message("1")).join();
        }
        assertEquals(Thread.currentThread(), asked.get());
    }

    @Test
    void noMistakeOfATraceHookPreventsASend() {
        TraceHook hook =
                new TraceHook() {
                    @Override
                    public Map<String, String> outgoing(String topic) {
                        return switch (topic) {
                            case "none" -> null;
                            case "value" -> Collections.singletonMap(TRACESTATE, null);
                            default -> throw new NoClassDefFoundError("of a tracing library");
                        };
                    }
                };
        store.gate.countDown();
        try (OrderlaneProducer traced =
                OrderlaneProducer.builder(server.address())
                        .logger(NOPLogger.NOP_LOGGER)
                        .trace(hook)
                        .build()) {
            for (String topic : List.of("none", "value", "error")) {
                traced.send(OutgoingMessage.to(topic).body(topic).build());
            }
        }
        assertEquals(List.of("none", "value", "error"), store.stored());
    }

    @Test
    void closeWaitsForCallsThatDoNot() {
        CompletableFuture<String> sent = producer.sendAsync(message("1"));
        new Thread(store.gate::countDown).start();
        producer.close();
        assertEquals(List.of("1"), store.stored());
        assertEquals(32, sent.join().length());
        assertThrows(IllegalStateException.class, () -> producer.sendAsync(message("2")));
    }
}
