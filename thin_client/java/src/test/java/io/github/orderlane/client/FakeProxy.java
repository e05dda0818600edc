package io.github.orderlane.client;

import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.AckBatch;
import io.github.orderlane.client.gen.consumer.AckRequest;
import io.github.orderlane.client.gen.consumer.ConsumerService;
import io.github.orderlane.client.gen.consumer.Context;
import io.github.orderlane.client.gen.consumer.ExtendRequest;
import io.github.orderlane.client.gen.consumer.Message;
import io.github.orderlane.client.gen.consumer.PullException;
import io.github.orderlane.client.gen.consumer.PullRequest;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.BooleanSupplier;

/** A proxy of one unordered queue: gives out the messages put into it, and records verdicts. */
final class FakeProxy implements AutoCloseable {
    private final FakeServer server =
            new FakeServer(
                    new ConsumerService.Processor<>(
                            PartOf.service(ConsumerService.Iface.class, this)));
    private final Deque<Message> waiting = new ArrayDeque<>();
    private final List<String> verdicts = new ArrayList<>();
    private long refusedLease;
    private PullException refusal;
    private long leases;
    private String client;
    private boolean closed;

    FakeProxy() throws IOException {}

    String address() {
        return server.address();
    }

    /** Adds one message of each key; leases count from 1. */
    synchronized void put(String... keys) {
        for (String key : keys) {
            leases++;
            waiting.add(
                    new Message()
                            .setLeaseId(leases)
                            .setOffset(leases)
                            .setValue("body".getBytes())
                            .setOrderKey(key.getBytes()));
        }
        notifyAll();
    }

    synchronized void refuseToExtend(long lease) {
        refusedLease = lease;
    }

    synchronized void refusePulls(PullException with) {
        refusal = with;
    }

    /** The client id of the last pull. */
    synchronized String client() {
        return client;
    }

    /**
     * All verdicts so far, such as {@code 1 ok}, sorted: pulls and settles use separate
     * connections, so their order of arrival is not meaningful.
     */
    synchronized List<String> verdicts() {
        return verdicts.stream().sorted().toList();
    }

    /** Waits until the condition holds; fails after 40 s. */
    synchronized void until(BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + 40_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("timed out; verdicts: " + verdicts);
            }
            wait(20);
        }
    }

    public synchronized PullResponse pull(PullRequest request) throws PullException {
        client = request.getClientId();
        apply(request.getAcks());
        if (refusal != null) {
            throw refusal;
        }
        long end = System.nanoTime() + request.getMaxLingerTime() * 1_000_000L;
        while (waiting.isEmpty() && System.nanoTime() < end && !closed) {
            try {
                wait(20);
            } catch (InterruptedException error) {
                break;
            }
        }
        List<Message> messages = new ArrayList<>();
        while (!waiting.isEmpty() && messages.size() < request.getMaxBatchSize()) {
            messages.add(waiting.remove());
        }
        if (messages.isEmpty()) {
            return new PullResponse(new Context(), messages);
        }
        return new PullResponse(new Context("g", "t", "q#1"), messages)
                .setLeaseMs(900)
                .setHome(address());
    }

    public synchronized AckAnswer settle(AckRequest request) {
        apply(request.getAcks());
        return new AckAnswer(List.of());
    }

    public synchronized AckAnswer extend(ExtendRequest request) {
        return new AckAnswer(
                request.getLeases().stream()
                        .filter(each -> each.getLeaseId() == refusedLease)
                        .toList());
    }

    private void apply(List<AckBatch> acks) {
        for (AckBatch batch : acks == null ? List.<AckBatch>of() : acks) {
            batch.getAcked().forEach(lease -> verdicts.add(lease + " ok"));
            batch.getNacked()
                    .forEach(
                            nack ->
                                    verdicts.add(
                                            nack.getLeaseId()
                                                    + (nack.isReject() ? " reject " : " retry ")
                                                    + nack.getReason()));
            batch.getReleased().forEach(lease -> verdicts.add(lease + " defer"));
        }
        notifyAll();
    }

    @Override
    public synchronized void close() throws IOException {
        closed = true;
        server.close();
        notifyAll();
    }
}
