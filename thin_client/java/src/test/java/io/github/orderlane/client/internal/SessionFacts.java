package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.gen.consumer.AckBatch;
import io.github.orderlane.client.gen.consumer.Nack;
import io.github.orderlane.client.gen.consumer.PullRequest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;

/** A naive model of the leases given to a session. */
class SessionFacts {
    static final long MS = Times.MS;
    static final long LINGER_NS = 20 * MS;
    static final long ANSWER_DUE_NS = 3 * MS;
    static final int CONCURRENCY = 3;
    static final int PREFETCH = 2;
    static final String[] KEYS = {"x", "x", "y", "z", null};

    /** The model's state of one lease. */
    static final class Given {
        long number;
        String key;
        String home;
        long deadlineNs;
        long lengthNs;
        Object run;
        HeldMessage message; // with a handler
        List<HeldMessage> batch; // messages of its handler
        String outcome;
        long settledNs;
        boolean inFlight;
        boolean confirmed;
        /** Refused, or expired at a silent proxy: its verdict may be dropped. */
        boolean lost;
        boolean hurry = true; // its verdict may release a message that a pull waits for
    }

    record UnderWay(Control control, long askedNs, List<Given> leases) {}

    record Failed(int failures, long notBeforeNs) {}

    final List<String> told = new ArrayList<>();
    final Session session =
            new Session(
                    new SessionOptions(
                            "g", List.of("t"), "c", "v", CONCURRENCY, PREFETCH, 4, LINGER_NS, "",
                            null),
                    new Clock());
    final Random random;
    final boolean batches;
    final Map<Long, Given> given = new LinkedHashMap<>();
    final Map<Home, UnderWay> underWay = new HashMap<>();
    final Map<String, Failed> failed = new HashMap<>();
    final Map<String, Long> ids = new LinkedHashMap<>(); // first sending by pull id
    long now = 1_000_000 * MS;
    String home = "a:1"; // the proxy of the next pull
    boolean pullFailed; // the last pull
    long leaseNs;
    PullRequest pull;
    long pullSentNs;
    List<Given> pullCarried = List.of();

    SessionFacts(long seed, boolean batches) {
        this.random = new Random(seed);
        this.batches = batches;
    }

    // ---- derived facts -------------------------------------------------------------------------

    List<Given> held() {
        return given.values().stream().filter(e -> e.outcome == null && !e.lost).toList();
    }

    List<Given> open() {
        return given.values().stream().filter(e -> e.message != null && e.outcome == null).toList();
    }

    int handlers() {
        return open().stream().map(e -> e.batch).collect(Collectors.toSet()).size();
    }

    List<Given> pending(String address) {
        return given.values().stream()
                .filter(e -> e.home.equals(address) && e.outcome != null)
                .filter(e -> !e.confirmed && !e.inFlight)
                .toList();
    }

    /** Messages that wait only for a handler. */
    List<Given> free() {
        Set<String> openKeys = open().stream().map(e -> e.key).collect(Collectors.toSet());
        return held().stream()
                .filter(e -> e.message == null && (e.key == null || !openKeys.contains(e.key)))
                .toList();
    }

    /** The leases of a request's verdicts: settled, not in flight, not confirmed. */
    List<Given> carried(List<AckBatch> acks, String address) {
        List<Given> found = new ArrayList<>();
        for (AckBatch batch : acks == null ? List.<AckBatch>of() : acks) {
            batch.getAcked().forEach(each -> found.add(carried(each, "ok", batch, address)));
            for (Nack nack : batch.getNacked()) {
                String verdict = nack.isReject() ? "reject" : "retry";
                found.add(carried(nack.getLeaseId(), verdict, batch, address));
            }
            batch.getReleased().forEach(each -> found.add(carried(each, "defer", batch, address)));
        }
        return found;
    }

    Given carried(long number, String verdict, AckBatch batch, String address) {
        Given each = given.get(number);
        assertEquals(verdict, each.outcome);
        assertFalse(each.inFlight || each.confirmed, "sent twice");
        assertTrue(address == null || each.home.equals(address), "S1");
        assertEquals(each.home, batch.getContext().getQid()); // contexts are identified by it
        each.inFlight = true;
        return each;
    }

    static void returned(List<Given> carried, boolean confirmed) {
        for (Given each : carried) {
            each.inFlight = false;
            each.confirmed = confirmed;
        }
    }

    // ---- invariants ----------------------------------------------------------------------------

    void check() {
        for (String address : List.of("a:1", "b:2")) {
            nothingWaitsTooLong(address);
        }
        if (!free().isEmpty() && handlers() < CONCURRENCY) {
            assertTrue(session.takeable() > 0, "free handlers get waiting messages");
        }
    }

    /** S2 and S5: while a verdict or a lease waits, a request to its proxy is due in time. */
    private void nothingWaitsTooLong(String address) {
        List<Given> pending = pending(address);
        List<Given> leases = held().stream().filter(e -> e.home.equals(address)).toList();
        if (pending.isEmpty() && leases.isEmpty()) {
            return;
        }
        Home at = session.homes.get(address);
        assertNotNull(at, "forgotten");
        OptionalLong due = session.controlAt(at);
        if (underWay.containsKey(at)) {
            assertTrue(due.isEmpty());
            return;
        }
        boolean hurry = pending.stream().anyMatch(each -> each.hurry);
        long limit = Long.MAX_VALUE;
        for (Given each : pending) {
            limit = Math.min(limit, flushLimit(each.settledNs, hurry));
        }
        for (Given each : leases) {
            limit = Math.min(limit, each.deadlineNs - 2 * each.lengthNs / 3);
        }
        limit = Math.max(limit, failed.getOrDefault(address, new Failed(0, 0)).notBeforeNs());
        assertTrue(due.isPresent() && due.getAsLong() <= limit, "S2, S5");
    }

    private long flushLimit(long settledNs, boolean hurry) {
        if (session.stopping() || pull != null && hurry && free().isEmpty()) {
            return settledNs;
        }
        long lingerEnd = settledNs + LINGER_NS;
        return pull == null || !hurry
                ? lingerEnd
                : Math.min(lingerEnd, Math.max(settledNs, pullSentNs + ANSWER_DUE_NS));
    }
}
