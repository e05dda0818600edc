package io.github.orderlane.client.internal;

import io.github.orderlane.client.ProtocolException;
import io.github.orderlane.client.gen.consumer.Context;
import io.github.orderlane.client.gen.consumer.LeaseRef;
import io.github.orderlane.client.gen.consumer.Message;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Reads the leases of an answer, batch by batch. Pure. */
final class PullReader {
    private PullReader() {}

    /** The answer and its further batches. */
    static List<PullResponse> parts(PullResponse response) {
        List<PullResponse> parts = new ArrayList<>();
        parts.add(response);
        if (response.getMore() != null) {
            parts.addAll(response.getMore());
        }
        return parts;
    }

    /** host:port of the proxy that holds the leases; null if absent. */
    static String home(List<PullResponse> parts) {
        for (PullResponse part : parts) {
            if (part.getHome() != null && !part.getHome().isEmpty()) {
                return part.getHome();
            }
        }
        return null;
    }

    /**
     * All leases of an answer; {@code sentNs}: when its pull was sent. Throws ProtocolException if
     * a required field is missing.
     */
    static List<Lease> leases(PullResponse response, Home home, long sentNs, Clock clock) {
        List<Lease> leases = new ArrayList<>();
        int lengthMs = response.isSetLeaseMs() ? response.getLeaseMs() : 0;
        for (PullResponse part : parts(response)) {
            if (part.getMessagesSize() > 0) {
                readBatch(part, lengthMs, home, sentNs, clock, leases);
            }
        }
        return leases;
    }

    private static void readBatch(
            PullResponse part, int outerMs, Home home, long sentNs, Clock clock, List<Lease> into) {
        Context context = part.getContext() == null ? new Context() : part.getContext();
        String topic = context.getTopic();
        String queue = context.getQid();
        long lengthMs = part.isSetLeaseMs() ? part.getLeaseMs() : outerMs;
        if (topic == null || topic.isEmpty() || queue == null || queue.isEmpty() || lengthMs <= 0) {
            throw new ProtocolException(
                    "the answer to a pull has messages, but no topic, qid or leaseMs", null);
        }
        Map<Lease.Key, Object> runs = new HashMap<>();
        for (Message each : part.getMessages()) {
            if (!each.isSetLeaseId() || !each.isSetValue() || !each.isSetOffset()) {
                throw new ProtocolException(
                        "a message of " + topic + "/" + queue
                                + " has no body, offset or lease",
                        null);
            }
            LeaseName name = new LeaseName(topic, queue, each.getLeaseId());
            long lengthNs = lengthMs * Times.MS;
            HeldMessage message =
                    new HeldMessage(name, context, each, sentNs + lengthNs, clock);
            Lease.Key key =
                    each.isSetOrderKey()
                            ? new Lease.Key(topic, ByteBuffer.wrap(each.getOrderKey()))
                            : null;
            Object run =
                    key == null ? new Object() : runs.computeIfAbsent(key, any -> new Object());
            into.add(new Lease(message, home, key, lengthNs, run));
        }
    }

    /** The leases named by references. */
    static Set<LeaseName> namesIn(List<LeaseRef> references) {
        Set<LeaseName> names = new HashSet<>();
        for (LeaseRef each : references) {
            Context context = each.getContext(); // required, so present
            names.add(new LeaseName(context.getTopic(), context.getQid(), each.getLeaseId()));
        }
        return names;
    }
}
