package orderlane.client.internal;

import java.util.List;

/** One proxy that holds leases of ours; written by the session alone. */
final class Home {
    /** host:port; null if the proxy did not say. */
    final String address;

    Verdicts verdicts = new Verdicts();
    /** When the next extend is planned; null: none. */
    Long extendAtNs;
    long retryAtNs;
    int failures;
    /** Under way: one settle, or one extend asked at {@code askedNs} for {@code askedLengthNs}. */
    Verdicts settling;
    List<Lease> extending;
    long askedNs;
    long askedLengthNs;

    Home(String address) {
        this.address = address;
    }

    /** True while a settle or extend is under way. */
    boolean busy() {
        return settling != null || extending != null;
    }

    /** Has the next extend go in time for this lease as well. */
    void planExtend(Lease lease) {
        if (extendAtNs == null || lease.extendAtNs() < extendAtNs) {
            extendAtNs = lease.extendAtNs();
        }
    }
}
