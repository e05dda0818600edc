package io.github.orderlane.client.internal;

import java.util.List;

/** A proxy that holds leases of this client; modified only by the session. */
final class Home {
    /** host:port; null if the proxy did not report it. */
    final String address;

    Verdicts verdicts = new Verdicts();
    /** When the next extend is planned; null: none. */
    Long extendAtNs;
    long retryAtNs;
    int failures;
    /** In flight: one settle, or one extend sent at {@code askedNs} for {@code askedLengthNs}. */
    Verdicts settling;
    List<Lease> extending;
    long askedNs;
    long askedLengthNs;

    Home(String address) {
        this.address = address;
    }

    /** True while a settle or extend is in flight. */
    boolean busy() {
        return settling != null || extending != null;
    }

    /** Moves the next extend forward, in time for this lease. */
    void planExtend(Lease lease) {
        if (extendAtNs == null || lease.extendAtNs() < extendAtNs) {
            extendAtNs = lease.extendAtNs();
        }
    }
}
