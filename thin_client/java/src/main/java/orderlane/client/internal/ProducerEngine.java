package orderlane.client.internal;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import orderlane.client.OrderlaneException;
import orderlane.client.OutgoingMessage;
import orderlane.client.SendFailedException;
import orderlane.client.SendFailedException.Failure;
import orderlane.client.Tls;
import orderlane.client.TraceHook;
import orderlane.client.gen.producer.Result;
import org.slf4j.Logger;

/** Sends one call at a time, in the order of calling. */
public final class ProducerEngine implements AutoCloseable {
    private final Servers servers;
    private final long sendTimeoutNs;
    private final long tryNs;
    private final String token;
    private final TraceHook trace;
    private final Logger log;
    private final Clock clock = new Clock();
    private final SendOrder order = new SendOrder();
    private final ReentrantLock turn = new ReentrantLock(true);
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
        this.log = log;
    }

    /**
     * Stores messages, those of one sharding key in order, and returns their ids. Throws
     * SendFailedException; no request is sent after one that failed.
     */
    public List<String> send(List<OutgoingMessage> messages) {
        if (closed) {
            throw isClosed();
        }
        List<Map<String, String>> traced = new ArrayList<>();
        messages.forEach(each -> traced.add(traced(each)));
        List<Delivery> requests =
                Delivery.of(messages, traced, token, clock.nowNs() + sendTimeoutNs);
        long number = order.enter();
        try {
            sendInTurn(requests, number);
        } catch (SendFailedException failed) {
            throw withRest(failed, requests);
        } finally {
            Set<SendOrder.Key> failed = new HashSet<>(); // keys of messages not known to be stored
            requests.forEach(request -> failed.addAll(request.keys()));
            order.leave(failed);
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
            return trace.outgoing(each.topic());
        } catch (RuntimeException error) {
            log.error("the trace hook failed", error);
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

    private void sendInTurn(List<Delivery> requests, long number) {
        boolean waits = turn.isLocked();
        turn.lock();
        try {
            if (ended) { // a connection made now would never be closed
                throw isClosed();
            }
            for (Delivery request : requests) {
                if (order.heldBack(number, request.keys())) {
                    throw request.notSent(
                            "an earlier send of its key failed while this one waited");
                }
                if (waits && clock.nowNs() > request.deadlineNs) {
                    throw request.notSent("timed out while waiting for earlier sends");
                }
            }
            for (Delivery request : requests) {
                deliver(request);
            }
        } finally {
            turn.unlock();
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
            if (connection == null) {
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
        turn.lock();
        try {
            ended = true;
            hangUp();
        } finally {
            turn.unlock();
        }
    }

    private static double jitter() {
        return ThreadLocalRandom.current().nextDouble();
    }
}
