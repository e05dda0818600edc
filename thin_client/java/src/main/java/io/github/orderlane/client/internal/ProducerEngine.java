package io.github.orderlane.client.internal;

import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.OutgoingMessage;
import io.github.orderlane.client.SendFailedException;
import io.github.orderlane.client.SendFailedException.Failure;
import io.github.orderlane.client.Tls;
import io.github.orderlane.client.TraceHook;
import io.github.orderlane.client.gen.producer.Result;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;

/** Sends one call at a time, in the order of calling: on the caller's thread, or on one of its own. */
public final class ProducerEngine implements AutoCloseable {
    /** How long the thread for asynchronous calls stays without one. */
    private static final long IDLE_S = 10;

    private final Servers servers;
    private final long sendTimeoutNs;
    private final long tryNs;
    private final String token;
    private final TraceHook trace;
    private final SafeLog log;
    private final Clock clock = new Clock();
    private final SendOrder order = new SendOrder();
    private final Turns turns = new Turns();
    private final ThreadPoolExecutor background =
            new ThreadPoolExecutor(
                    1,
                    1,
                    IDLE_S,
                    TimeUnit.SECONDS,
                    new LinkedBlockingQueue<>(),
                    ProducerEngine::thread);
    private final Object asynchronous = new Object(); // makes their tasks wait in their order
    private Connection connection; // owned by the current call
    private boolean ended; // closed; owned by the current call
    private volatile boolean closed;

    public ProducerEngine(
            List<Address> addresses,
            Tls tls,
            String token,
            Duration sendTimeout,
            Duration requestTimeout,
            TraceHook trace,
            Logger log) {
        this.servers = new Servers(addresses, new Dialer(tls));
        this.sendTimeoutNs = Times.nanos(sendTimeout);
        this.tryNs = Times.nanos(requestTimeout);
        this.token = token;
        this.trace = trace;
        this.log = new SafeLog(log);
        background.allowCoreThreadTimeOut(true);
    }

    private static Thread thread(Runnable work) {
        Thread thread = new Thread(work, "orderlane sends");
        thread.setDaemon(true);
        return thread;
    }

    /** A call, from its place in the order on. */
    private record Sending(
            List<Delivery> requests, long number, CompletableFuture<Void> turn, boolean waits) {}

    /**
     * Stores messages, those of one sharding key in order, and returns their ids. Throws
     * SendFailedException; no request is sent after one that failed.
     */
    public List<String> send(List<OutgoingMessage> messages) {
        Sending sending = entered(requests(messages));
        sending.turn.join(); // does not end at an interrupt
        return sent(sending);
    }

    /**
     * As send, on a thread of the producer. The future completes on the default executor of
     * futures, so its dependents may block, or use the producer; without further threads, it
     * completes on the thread that sent. If the producer's thread cannot start, the future fails.
     */
    public CompletableFuture<List<String>> sendAsync(List<OutgoingMessage> messages) {
        List<Delivery> requests = requests(messages);
        CompletableFuture<List<String>> result = new CompletableFuture<>();
        AtomicBoolean begun = new AtomicBoolean(); // or given up
        synchronized (asynchronous) {
            Sending sending = entered(requests);
            try {
                background.execute(
                        () -> {
                            if (begun.compareAndSet(false, true)) {
                                sendInBackground(sending, result);
                            }
                        });
            } catch (RuntimeException | Error noThread) {
                if (begun.compareAndSet(false, true)) { // the executor may have kept the task
                    order.leave(Set.of()); // no call was made after it yet
                    turns.abandon(sending.turn);
                    if (requests.isEmpty()) {
                        result.complete(List.of());
                    } else {
                        result.completeExceptionally(withoutThread(requests, noThread));
                    }
                }
            }
        }
        return result;
    }

    private void sendInBackground(Sending sending, CompletableFuture<List<String>> result) {
        Runnable completion;
        try {
            sending.turn.join();
            List<String> ids = sent(sending);
            completion = () -> result.complete(ids);
        } catch (Throwable failure) {
            completion = () -> result.completeExceptionally(failure);
        }
        try {
            result.defaultExecutor().execute(completion);
        } catch (RuntimeException | Error noThread) {
            completion.run(); // late is better than never
        }
    }

    private static SendFailedException withoutThread(List<Delivery> requests, Throwable error) {
        String why = "no thread could be started to send it: " + Texts.described(error);
        SendFailedException failed = withRest(requests.get(0).notSent(why), requests);
        failed.addSuppressed(error);
        return failed;
    }

    private List<Delivery> requests(List<OutgoingMessage> messages) {
        if (closed) {
            throw isClosed();
        }
        List<Map<String, String>> traced = new ArrayList<>();
        messages.forEach(each -> traced.add(traced(each)));
        return Delivery.of(messages, traced, token, clock.nowNs() + sendTimeoutNs);
    }

    private Sending entered(List<Delivery> requests) {
        long number = order.enter();
        CompletableFuture<Void> turn = turns.enter();
        return new Sending(requests, number, turn, !turn.isDone());
    }

    /** Sends a call that has its turn, and ends its turn. */
    private List<String> sent(Sending sending) {
        List<Delivery> requests = sending.requests;
        try {
            sendInTurn(sending);
        } catch (SendFailedException failed) {
            throw withRest(failed, requests);
        } finally {
            Set<SendOrder.Key> failed = new HashSet<>(); // keys of messages not known to be stored
            requests.forEach(request -> failed.addAll(request.keys()));
            order.leave(failed);
            turns.leave();
        }
        List<String> ids = new ArrayList<>();
        requests.forEach(request -> ids.addAll(request.ids()));
        return ids;
    }

    private static IllegalStateException isClosed() {
        return new IllegalStateException("the producer is closed: create a new one");
    }

    private Map<String, String> traced(OutgoingMessage each) {
        try {
            return Map.copyOf(trace.outgoing(each.topic())); // without null, which no send encodes
        } catch (Throwable error) { // even an Error must not prevent a send
            log.error(error, "the trace hook failed");
            return Map.of();
        }
    }

    /** Adds the messages not tried because of the failure. */
    private static SendFailedException withRest(
            SendFailedException failed, List<Delivery> requests) {
        String why = "not sent: an earlier part of the batch failed";
        Failure unsent = new Failure(why, OptionalInt.empty(), false);
        Map<String, Failure> known = failed.failures();
        Map<String, Failure> all = new LinkedHashMap<>();
        List<String> ids = new ArrayList<>();
        for (Delivery request : requests) {
            ids.addAll(request.ids());
            request.openIds().forEach(id -> all.put(id, known.getOrDefault(id, unsent)));
        }
        Integer code = failed.code().isPresent() ? failed.code().getAsInt() : null;
        SendFailedException whole = new SendFailedException(failed.getMessage(), code, ids, all);
        whole.setStackTrace(failed.getStackTrace());
        return whole;
    }

    private void sendInTurn(Sending sending) {
        if (ended) { // a connection made now would never be closed
            throw isClosed();
        }
        for (Delivery request : sending.requests) {
            if (order.heldBack(sending.number, request.keys())) {
                throw request.notSent("an earlier send of its key failed while this one waited");
            }
            if (sending.waits && clock.nowNs() > request.deadlineNs) {
                throw request.notSent("timed out while waiting for earlier sends");
            }
        }
        for (Delivery request : sending.requests) {
            deliver(request);
        }
    }

    private void deliver(Delivery request) {
        while (true) {
            long pauseNs = attempt(request);
            if (pauseNs < 0) {
                return;
            }
            try {
                TimeUnit.NANOSECONDS.sleep(pauseNs);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw request.notSent("its thread was interrupted between two tries");
            }
        }
    }

    private long attempt(Delivery request) {
        boolean sent = false;
        long pauseNs;
        Delivery.Attempt attempt = request.attempt(clock.nowNs(), tryNs);
        try {
            if (connection == null || connection.closed()) {
                connection = servers.dial(servers.current(), attempt.limitNs());
            }
            sent = true;
            Result result = connection.call(attempt.call(), attempt.limitNs());
            pauseNs = request.pauseAfter(result, clock.nowNs(), jitter());
            if (pauseNs >= 0 && Times.isNews(request.failures())) {
                logAgain(request, result.getMsg());
            }
        } catch (SendFailedException failed) {
            throw failed;
        } catch (OrderlaneException error) {
            hangUp();
            servers.failed();
            pauseNs = request.pauseAfterError(error, sent, clock.nowNs(), jitter());
            if (Times.isNews(request.failures())) {
                logAgain(request, error.getMessage());
            }
        }
        return pauseNs;
    }

    private void logAgain(Delivery request, String why) {
        log.warn("sending to {} failed, retrying: {}", request.topic(), why);
    }

    private void hangUp() {
        if (connection != null) {
            connection.close();
            connection = null;
        }
    }

    /** Waits for sends in progress, and closes the connection. */
    @Override
    public void close() {
        closed = true;
        turns.enter().join();
        try {
            ended = true;
            hangUp();
        } finally {
            turns.leave();
        }
    }

    private static double jitter() {
        return ThreadLocalRandom.current().nextDouble();
    }
}
