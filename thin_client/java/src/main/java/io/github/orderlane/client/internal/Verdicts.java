package io.github.orderlane.client.internal;

import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.gen.consumer.AckBatch;
import io.github.orderlane.client.gen.consumer.Context;
import io.github.orderlane.client.gen.consumer.Nack;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Verdicts for the proxy that holds their leases, grouped as on the wire. Sending them is
 * idempotent. Pure.
 */
final class Verdicts {
    /** Characters of an exception's text shown to operators. */
    static final int MAX_REASON = 200;

    private record Queue(String topic, String qid) {}

    /** When the oldest was added; null: empty. */
    Long sinceNs;
    /** After this all their leases have expired. */
    long usefulUntilNs;
    /** Whether they may release a message that a pull waits for. */
    boolean hurry;

    private final Map<Queue, AckBatch> batches = new LinkedHashMap<>();

    boolean isEmpty() {
        return sinceNs == null;
    }

    /** Adds the verdict on one lease. */
    void add(HeldMessage message, Outcome outcome, long nowNs) {
        Context context = message.context;
        AckBatch batch =
                batches.computeIfAbsent(
                        new Queue(message.topic(), message.queue()),
                        queue ->
                                new AckBatch(context)
                                        .setAcked(new ArrayList<>())
                                        .setNacked(new ArrayList<>())
                                        .setReleased(new ArrayList<>()));
        long leaseId = message.leaseId();
        if (outcome instanceof Outcome.Ok) {
            batch.getAcked().add(leaseId);
        } else if (outcome instanceof Outcome.Defer) {
            batch.getReleased().add(leaseId);
        } else {
            batch.getNacked().add(nack(leaseId, outcome));
        }
        usefulUntilNs = Math.max(usefulUntilNs, message.deadlineNs);
        if (isEmpty()) {
            sinceNs = nowNs;
        }
    }

    /** Returns the wire form. */
    List<AckBatch> batches() {
        return new ArrayList<>(batches.values());
    }

    int size() {
        int size = 0;
        for (AckBatch batch : batches.values()) {
            size += batch.getAckedSize() + batch.getNackedSize() + batch.getReleasedSize();
        }
        return size;
    }

    /** Adds the verdicts of a failed request. */
    void absorb(Verdicts other) {
        if (other.isEmpty()) {
            return;
        }
        other.batches.forEach(
                (queue, batch) -> {
                    AckBatch mine = batches.putIfAbsent(queue, batch);
                    if (mine != null) {
                        mine.getAcked().addAll(0, batch.getAcked());
                        mine.getNacked().addAll(0, batch.getNacked());
                        mine.getReleased().addAll(0, batch.getReleased());
                    }
                });
        usefulUntilNs = Math.max(usefulUntilNs, other.usefulUntilNs);
        sinceNs = isEmpty() ? other.sinceNs : Long.valueOf(Math.min(sinceNs, other.sinceNs));
        hurry |= other.hurry;
    }

    private static Nack nack(long leaseId, Outcome outcome) {
        Nack nack = new Nack(leaseId);
        if (outcome instanceof Outcome.Reject reject) {
            return nack.setReject(true).setReason(shortened(reject.reason()));
        }
        Outcome.Retry retry = (Outcome.Retry) outcome;
        if (!retry.reason().isEmpty()) {
            nack.setReason(shortened(retry.reason()));
        }
        retry.after()
                .ifPresent(
                        after -> {
                            long ms = Times.nanos(after) / Times.MS;
                            nack.setRetryAfterMs((int) Math.min(ms, Integer.MAX_VALUE));
                        });
        return nack;
    }

    private static String shortened(String text) {
        if (text.codePointCount(0, text.length()) <= MAX_REASON) {
            return text;
        }
        return text.substring(0, text.offsetByCodePoints(0, MAX_REASON));
    }
}
