package io.github.orderlane.client.internal;

import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.AckBatch;
import io.github.orderlane.client.gen.consumer.AckRequest;
import io.github.orderlane.client.gen.consumer.ExtendRequest;
import io.github.orderlane.client.gen.consumer.LeaseRef;
import io.github.orderlane.client.gen.consumer.PullRequest;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;

/**
 * Decides what a consuming client does next. Pure: the shell around it owns sockets, threads and
 * the clock. It asks {@link #pullAt} and {@link #controlAt} when something is due, sends what
 * {@link #beginPull} and {@link #beginControl} return, reports the answer or the failure, gives
 * messages from {@link #take} to handlers, and reports their ends to {@link #settle}. All times in
 * ns; guard it with one lock. {@code thin_client/session.py} is the model, and its rules apply:
 *
 * <p>S1: a verdict rides on the next pull to the proxy that holds its lease. S2: it waits for that
 * pull, the linger at most; if it may make a message available to a pull already waiting at the
 * proxy, it is sent at once if no message waits here, and otherwise once that pull has been
 * unanswered for 3 ms. S3: it is resent until it is confirmed or its lease must have expired. S4: a
 * lease runs from the moment its pull was <em>sent</em>; after it has expired, its message is
 * handled only if an extend has confirmed it. S5: a lease is extended after a third of its length,
 * whether its message is handled or waits. S6: at most one handler has messages of an order key,
 * even if the proxy errs. S7: at most {@code concurrency} handlers have messages, and at most
 * {@code prefetch} more messages wait. S8: after {@link #stop} waiting messages and later arrivals
 * are released. S9: a failed pull is repeated under the same id; its leases run from the
 * <em>first</em> sending; once they must have expired, the next pull has a new id. S10: messages of
 * one order key that arrive together form a run: when one fails, those behind it are released with
 * its verdict.
 */
final class Session {
    /**
     * Limits of a pull's wait. It waits for a quarter of the lease, so that its messages have most
     * of their lease left (S4), and for the first linger before the first lease.
     */
    private static final long MIN_LINGER_NS = 20 * Times.MS;

    private static final long FIRST_LINGER_NS = 1_000 * Times.MS;
    private static final long MAX_LINGER_NS = 10_000 * Times.MS;
    /** Pause after an early empty answer: the proxy is shutting down. */
    private static final long EARLY_PAUSE_NS = 50 * Times.MS;
    /** A proxy with messages answers a pull within this; without messages it lets the pull wait. */
    private static final long ANSWER_DUE_NS = 3 * Times.MS;

    private record Pull(
            String requestId,
            long firstSentNs, // under this id
            long sentNs,
            long lingerNs,
            Verdicts verdicts,
            Home home) {} // home of these verdicts

    final SessionOptions options;
    /** Proxies that hold our leases or await verdicts, by address; null: not reported. */
    final Map<String, Home> homes = new HashMap<>();

    private final Clock clock;
    private final Leases leases;
    private final int capacity;
    private final int lowWater;
    private boolean stopping;
    private Pull pull;
    private Pull failedPull; // to be repeated
    private long pulls; // ids used so far
    private long leaseNs; // the longest of the most recent leases; 0: no lease yet
    private Home pullHome; // the pull connection's proxy, if known
    private long pullRetryAtNs;
    private int pullFailures;
    private long lingerNs = FIRST_LINGER_NS;

    /** {@code clock} is for the time left of messages; the session receives times as arguments. */
    Session(SessionOptions options, Clock clock) {
        this.options = options;
        this.clock = clock;
        leases = new Leases(options.concurrency());
        long room = (long) options.concurrency() + options.prefetch();
        capacity = (int) Math.min(room, Integer.MAX_VALUE);
        lowWater = Math.max(1, (int) ((options.prefetch() + 1L) / 2));
    }

    @Override
    public String toString() {
        return String.format(
                "<Session %s handlers=%d ready=%d held=%d pulling=%s homes=%d>",
                options.group(), leases.handlers(), leases.ready(), leases.size(),
                pull != null, homes.size());
    }

    // ---- messages and handlers -----------------------------------------------------------------

    boolean stopping() {
        return stopping;
    }

    /** Consecutive failures of pulls. */
    int pullFailures() {
        return pullFailures;
    }

    /** How many handlers could start now; too high while expired leases wait. */
    int takeable() {
        return Math.min(leases.ready(), leases.concurrency() - leases.handlers());
    }

    /** True if nothing is in flight or waiting to be sent. */
    boolean flushed() {
        boolean outbound =
                homes.values().stream().anyMatch(home -> home.busy() || !home.verdicts.isEmpty());
        return pull == null && !outbound;
    }

    /** True if, in addition, no lease is held. */
    boolean drained() {
        return leases.size() == 0 && flushed();
    }

    /** Returns the next message for a handler, or null (S4, S6, S7). */
    HeldMessage take(long nowNs) {
        Lease lease = leases.take(nowNs);
        return lease == null ? null : lease.message;
    }

    /** Returns the next message and the rest of its run, for one handler; possibly empty. */
    List<HeldMessage> takeRun(long nowNs) {
        return leases.takeRun(nowNs, options.maxRun());
    }

    /** Ends the handling of a message. Throws IllegalArgumentException if no handler had it. */
    void settle(HeldMessage message, Ending ending, long nowNs) {
        settle(List.of(message), ending.isOk() ? 1 : 0, ending, nowNs);
    }

    /**
     * Ends the handling of a run: the first {@code done} messages are handled, {@code ending}
     * applies to the next, and the rest is released (S10).
     */
    void settle(List<HeldMessage> run, int done, Ending ending, long nowNs) {
        boolean failed = done < run.size();
        List<Lease> rest = failed ? leases.dropRest(run.get(0)) : List.of();
        List<Lease> closed = leases.close(run);
        boolean releases = failed || !leases.has(closed.get(0).key);
        for (int i = 0; i < closed.size(); i++) {
            Ending each = i < done ? Ending.OK : i == done ? ending : Ending.DEFER;
            judge(closed.get(i), each, nowNs, releases);
        }
        rest.forEach(lease -> judge(lease, Ending.DEFER, nowNs, true));
    }

    /** Stops pulling, and releases waiting messages (S8). */
    void stop(long nowNs) {
        stopping = true;
        leases.dropWaiting().forEach(lease -> judge(lease, Ending.DEFER, nowNs, true));
    }

    private static void judge(Lease lease, Ending ending, long nowNs, boolean hurry) {
        lease.home.verdicts.add(lease.message, ending.outcome(), nowNs);
        lease.home.verdicts.hurry |= hurry;
    }

    // ---- pulling -------------------------------------------------------------------------------

    /** Returns when the next pull is due; empty if none is. */
    OptionalLong pullAt() {
        boolean enough = leases.ready() >= lowWater || leases.size() >= capacity;
        boolean none = stopping || pull != null || enough;
        return none ? OptionalLong.empty() : OptionalLong.of(pullRetryAtNs);
    }

    /**
     * Returns the pull to send now, including verdicts (S1). An answer or a failure must follow.
     */
    PullRequest beginPull(long nowNs) {
        Home home = pullHome != null ? pullHome : homes.get(null);
        Verdicts riding = new Verdicts();
        if (home != null) {
            riding = home.verdicts;
            home.verdicts = new Verdicts();
        }
        String requestId = null;
        long firstSentNs = nowNs;
        if (failedPull != null && !mustBeOver(failedPull, nowNs)) { // S9
            requestId = failedPull.requestId();
            firstSentNs = failedPull.firstSentNs();
        } else {
            requestId = options.requestPrefix() + ++pulls;
        }
        failedPull = null;
        pull = new Pull(requestId, firstSentNs, nowNs, lingerNs, riding, home);
        List<AckBatch> acks = riding.isEmpty() ? null : riding.batches();
        return options.pullRequest(requestId, capacity - leases.size(), lingerNs, acks);
    }

    private boolean mustBeOver(Pull failed, long nowNs) {
        return leaseNs > 0 && nowNs >= failed.firstSentNs() + failed.lingerNs() + leaseNs;
    }

    /**
     * Adds the messages; returns their number. Throws ProtocolException for a malformed answer;
     * then nothing has changed, and {@link #pullFailed} must follow.
     */
    int pullAnswered(PullResponse response, long nowNs) {
        String address = PullReader.home(PullReader.parts(response));
        Home home = homes.containsKey(address) ? homes.get(address) : new Home(address);
        List<Lease> arrived = PullReader.leases(response, home, pull.firstSentNs(), clock);
        Pull answered = pull;
        pull = null;
        pullFailures = 0;
        if (!arrived.isEmpty()) {
            homes.put(address, home);
            pullHome = home;
            long shortest = arrived.stream().mapToLong(lease -> lease.lengthNs).min().getAsLong();
            leaseNs = arrived.stream().mapToLong(lease -> lease.lengthNs).max().getAsLong();
            lingerNs = Math.min(Math.max(shortest / 4, MIN_LINGER_NS), MAX_LINGER_NS);
        } else if (nowNs - answered.sentNs() < answered.lingerNs() / 2) {
            pullRetryAtNs = nowNs + EARLY_PAUSE_NS;
        }
        for (Lease lease : arrived) {
            if (stopping) {
                judge(lease, Ending.DEFER, nowNs, true);
            } else if (leases.add(lease)) {
                home.planExtend(lease);
            }
        }
        forgetIdleHomes();
        return arrived.size();
    }

    /** Records that the connection of pulls ended: the next one may lead to another proxy. */
    void pullsReconnect() {
        pullHome = null;
    }

    /**
     * Handles a pull that had no answer, a bad one, or no connection; its verdicts are resent (S3).
     */
    void pullFailed(long nowNs, double jitter) {
        if (pull != null) {
            failedPull = pull;
            if (pull.home() != null) {
                pull.home().verdicts.absorb(pull.verdicts());
            }
            pull = null;
        }
        pullsReconnect();
        pullFailures++;
        pullRetryAtNs = nowNs + Times.backoffNs(pullFailures, jitter);
    }

    // ---- settling and extending ----------------------------------------------------------------

    /** Returns when a settle or extend is due at a proxy (S2, S5); empty if none is. */
    OptionalLong controlAt(Home home) {
        if (home.busy()) {
            return OptionalLong.empty();
        }
        long due = flushAt(home);
        if (home.extendAtNs != null) {
            due = Math.min(due, home.extendAtNs);
        }
        return due == Long.MAX_VALUE
                ? OptionalLong.empty()
                : OptionalLong.of(Math.max(due, home.retryAtNs));
    }

    /** Returns the request for a proxy now, or null. An answer or a failure must follow. */
    Control beginControl(Home home, long nowNs) {
        if (home.extendAtNs != null && home.extendAtNs <= nowNs) {
            planExtends(home); // the lease that set the time may be gone
            if (home.extendAtNs != null && home.extendAtNs <= nowNs) {
                return Control.extend(beginExtend(home, nowNs));
            }
        }
        if (flushAt(home) > nowNs) {
            return null;
        }
        home.settling = home.verdicts;
        home.verdicts = new Verdicts();
        return Control.settle(
                new AckRequest(options.group(), home.settling.batches())
                        .setClientId(options.clientId())
                        .setToken(options.token()));
    }

    /** Handles the answer; returns messages with handlers whose lease is lost. */
    List<HeldMessage> controlAnswered(Home home, AckAnswer answer) {
        List<Lease> extended = home.extending;
        home.extending = null;
        home.settling = null;
        home.failures = 0;
        home.retryAtNs = 0;
        List<HeldMessage> lost = new ArrayList<>();
        if (extended != null) {
            Set<LeaseName> refused = PullReader.namesIn(answer.getNotHeld());
            for (Lease lease : extended) {
                if (refused.contains(lease.message.name())) {
                    lose(lease, lost);
                } else {
                    lease.lengthNs = home.askedLengthNs;
                    lease.message.deadlineNs = home.askedNs + lease.lengthNs;
                }
            }
            planExtends(home);
        }
        forgetIdleHomes();
        return lost;
    }

    /**
     * Handles a missing answer: everything is resent (S3). Returns messages with handlers whose
     * lease has expired without an answer from the proxy.
     */
    List<HeldMessage> controlFailed(Home home, long nowNs, double jitter) {
        if (home.settling != null) {
            home.verdicts.absorb(home.settling);
        }
        home.settling = null;
        home.extending = null;
        home.failures++;
        home.retryAtNs = nowNs + Times.backoffNs(home.failures, jitter);
        if (home.verdicts.usefulUntilNs <= nowNs) {
            home.verdicts = new Verdicts();
        }
        List<HeldMessage> lost = new ArrayList<>();
        for (Lease lease : leases.at(home)) {
            if (lease.message.deadlineNs <= nowNs) {
                lose(lease, lost);
            }
        }
        planExtends(home);
        forgetIdleHomes();
        return lost;
    }

    /** Returns when the verdicts for a proxy are due; MAX_VALUE: there are none. */
    private long flushAt(Home home) {
        Long since = home.verdicts.sinceNs;
        if (since == null) {
            return Long.MAX_VALUE;
        }
        boolean hurry = home.verdicts.hurry && pull != null;
        if (stopping || hurry && leases.ready() == 0) {
            return since;
        }
        long last = since + options.ackLingerNs();
        return hurry ? Math.min(last, Math.max(since, pull.sentNs() + ANSWER_DUE_NS)) : last;
    }

    private ExtendRequest beginExtend(Home home, long nowNs) {
        home.extending = leases.at(home);
        home.askedNs = nowNs;
        // With several lengths, use the shortest: the proxy caps a longer one silently.
        home.askedLengthNs =
                home.extending.stream().mapToLong(lease -> lease.lengthNs).min().getAsLong();
        List<LeaseRef> references = new ArrayList<>(home.extending.size());
        for (Lease lease : home.extending) {
            references.add(new LeaseRef(lease.message.context, lease.message.leaseId()));
        }
        return new ExtendRequest(
                        options.group(), references, (int) (home.askedLengthNs / Times.MS))
                .setClientId(options.clientId())
                .setToken(options.token());
    }

    private void planExtends(Home home) {
        home.extendAtNs = null;
        leases.at(home).forEach(home::planExtend);
    }

    private void lose(Lease lease, List<HeldMessage> lost) {
        if (!leases.holds(lease)) {
            return;
        }
        if (lease.open) {
            lease.message.markLost();
            lost.add(lease.message);
        } else {
            leases.drop(lease);
        }
    }

    private void forgetIdleHomes() {
        if (homes.size() < 2) {
            return;
        }
        Set<Home> needed = new HashSet<>();
        leases.all().forEach(lease -> needed.add(lease.home));
        needed.add(pullHome);
        needed.add(pull == null ? null : pull.home());
        homes.values()
                .removeIf(
                        home ->
                                !needed.contains(home) && !home.busy() && home.verdicts.isEmpty());
    }
}
