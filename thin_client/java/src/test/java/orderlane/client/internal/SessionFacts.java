package orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import orderlane.client.gen.consumer.AckBatch;
import orderlane.client.gen.consumer.Nack;
import orderlane.client.gen.consumer.PullRequest;

/** What a test knows of the leases that a session was given, told in the simplest way. */
class SessionFacts {
    static final long MS = Times.MS;
    static final long LINGER_NS = 20 * MS;
    static final long ANSWER_DUE_NS = 3 * MS;
    static final int CONCURRENCY = 3;
    static final int PREFETCH = 2;
    static final String[] KEYS = {"x", "x", "y", "z", null};

    /** What the model knows of one lease. */
    static final class Given {
        long number;
        String key;
        String home;
        long deadlineNs;
        long lengthNs;
        Object run;
        HeldMessage message; // with a handler
        List<HeldMessage> batch; // those that its handler has
        String outcome;
        long settledNs;
        boolean inFlight;
        boolean confirmed;
        /** Refused, or out of time at a silent proxy: its verdict may be dropped. */
        boolean lost;
        boolean hurry = true; // its verdict may release what a pull waits for
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
    final Map<String, Long> ids = new LinkedHashMap<>(); // of pulls: first sent when
    long now = 1_000_000 * MS;
    String home = "a:1"; // where the next pull leads
    boolean pullFailed; // the last one
    long leaseNs;
    PullRequest pull;
    long pullSentNs;
    List<Given> pullCarried = List.of();

    SessionFacts(long seed, boolean batches) {
        this.random = new Random(seed);
        this.batches = batches;
    }

    // ---- what the model derives ----------------------------------------------------------------

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

    /** Messages that wait for nothing but a handler. */
    List<Given> free() {
        Set<String> openKeys = open().stream().map(e -> e.key).collect(Collectors.toSet());
        return held().stream()
                .filter(e -> e.message == null && (e.key == null || !openKeys.contains(e.key)))
                .toList();
    }

    /** The leases of a request's verdicts: each settled so, not under way, not confirmed. */
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
        assertEquals(each.home, batch.getContext().getQid()); // the contexts tell by it
        each.inFlight = true;
        return each;
    }

    static void returned(List<Given> carried, boolean confirmed) {
        for (Given each : carried) {
            each.inFlight = false;
            each.confirmed = confirmed;
        }
    }

    // ---- what always holds ---------------------------------------------------------------------

    void check() {
        for (String address : List.of("a:1", "b:2")) {
            nothingWaitsTooLong(address);
        }
        if (!free().isEmpty() && handlers() < CONCURRENCY) {
            assertTrue(session.takeable() > 0, "a free handler gets what waits");
        }
    }

    /** S2 and S5: while a verdict or a lease waits, its proxy is to be asked in time. */
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
