package io.github.orderlane.client.internal;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The messages a client holds: open ones with handlers, ready ones, and those chained behind
 * another of their key. Pure; O(1) unless noted.
 */
final class Leases {
    private final int concurrency;
    private final Map<LeaseName, Lease> held = new LinkedHashMap<>();
    private final Deque<Lease> ready = new ArrayDeque<>();
    /** Leases behind a ready or open one of their key. */
    private final Map<Lease.Key, Deque<Lease>> chains = new HashMap<>();

    private int handlers;

    Leases(int concurrency) {
        this.concurrency = concurrency;
    }

    /** Running handlers; a run taken as a batch counts once. */
    int handlers() {
        return handlers;
    }

    int concurrency() {
        return concurrency;
    }

    int size() {
        return held.size();
    }

    Collection<Lease> all() {
        return held.values();
    }

    /** Leases to extend at a proxy; O(n). */
    List<Lease> at(Home home) {
        List<Lease> found = new ArrayList<>();
        for (Lease lease : held.values()) {
            if (lease.home == home && !lease.message.leaseLost()) {
                found.add(lease);
            }
        }
        return found;
    }

    /** Leases that wait only for a handler. */
    int ready() {
        return ready.size();
    }

    /** True if a message of this key is held; false without a key. */
    boolean has(Lease.Key key) {
        return key != null && chains.containsKey(key);
    }

    /** False after it was closed or removed. */
    boolean holds(Lease lease) {
        return held.get(lease.message.name()) == lease;
    }

    /** Adds a new lease; returns false, and ignores it, if it is already held. */
    boolean add(Lease lease) {
        if (held.putIfAbsent(lease.message.name(), lease) != null) {
            return false;
        }
        Deque<Lease> chain = lease.key == null ? null : chains.get(lease.key);
        if (chain != null) {
            chain.add(lease);
            return true;
        }
        if (lease.key != null) {
            chains.put(lease.key, new ArrayDeque<>(0));
        }
        ready.add(lease);
        return true;
    }

    /** Opens the next ready lease that has not expired, or returns null; O(expired leases). */
    Lease take(long nowNs) {
        if (handlers >= concurrency) {
            return null;
        }
        for (int left = ready.size(); left > 0; left--) {
            Lease lease = ready.remove();
            if (lease.message.deadlineNs > nowNs) {
                lease.open = true;
                handlers++;
                return lease;
            }
            ready.add(lease); // a different key each, so order does not matter
        }
        return null;
    }

    /** As take, with the rest of its run, for one handler; at most {@code most} in all; O(run). */
    List<HeldMessage> takeRun(long nowNs, int most) {
        Lease first = take(nowNs);
        if (first == null) {
            return List.of();
        }
        List<HeldMessage> run = new ArrayList<>();
        run.add(first.message);
        Deque<Lease> chain = first.key == null ? new ArrayDeque<>(0) : chains.get(first.key);
        while (run.size() < most
                && !chain.isEmpty()
                && chain.peek().run == first.run
                && chain.peek().message.deadlineNs > nowNs) {
            Lease lease = chain.remove();
            lease.open = true;
            run.add(lease.message);
        }
        return run;
    }

    /**
     * Closes leases that one handler took; the next one of their key becomes ready. Throws
     * IllegalArgumentException if a message was not with a handler.
     */
    List<Lease> close(List<HeldMessage> messages) {
        List<Lease> closed = new ArrayList<>(messages.size());
        for (HeldMessage message : messages) {
            Lease lease = held.get(message.name());
            if (lease == null || !lease.open) {
                throw new IllegalArgumentException(message + ": not with a handler");
            }
            closed.add(lease);
        }
        handlers--;
        closed.forEach(lease -> held.remove(lease.message.name()));
        advance(closed.get(0).key);
        return closed;
    }

    /** Removes and returns the leases behind these open ones in their run; O(run). */
    List<Lease> dropRest(HeldMessage message) {
        Lease lease = held.get(message.name());
        List<Lease> rest = new ArrayList<>();
        if (lease != null && lease.key != null) {
            for (Iterator<Lease> each = chains.get(lease.key).iterator(); each.hasNext(); ) {
                Lease behind = each.next();
                if (behind.run == lease.run) {
                    each.remove();
                    held.remove(behind.message.name());
                    rest.add(behind);
                }
            }
        }
        return rest;
    }

    /** Removes a lease that is not open; O(n). */
    void drop(Lease lease) {
        held.remove(lease.message.name());
        if (ready.remove(lease)) {
            advance(lease.key);
        } else { // only ordered leases are chained
            chains.get(lease.key).remove(lease);
        }
    }

    /** Removes and returns all leases that are not open; O(n). */
    List<Lease> dropWaiting() {
        List<Lease> waiting = new ArrayList<>();
        Set<Lease.Key> openKeys = new HashSet<>();
        for (Lease lease : held.values()) {
            if (lease.open) {
                openKeys.add(lease.key);
            } else {
                waiting.add(lease);
            }
        }
        waiting.forEach(lease -> held.remove(lease.message.name()));
        ready.clear();
        chains.keySet().retainAll(openKeys);
        chains.values().forEach(Collection::clear);
        return waiting;
    }

    private void advance(Lease.Key key) {
        if (key == null) {
            return;
        }
        Lease next = chains.get(key).poll();
        if (next == null) {
            chains.remove(key);
        } else {
            ready.add(next);
        }
    }
}
