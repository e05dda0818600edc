package io.github.orderlane.client.internal;

import java.util.List;

/** The proxies in rotation: after a failure the next one is tried. */
final class Servers {
    private final List<Address> addresses;
    private final Dialer dialer;
    private volatile int failures;

    Servers(List<Address> addresses, Dialer dialer) {
        this.addresses = addresses;
        this.dialer = dialer;
    }

    /**
     * The target of a connection.
     *
     * @param turn number of addresses to skip, if the name resolves to several
     */
    record Destination(Address address, int turn) {}

    /**
     * The target of the next connection; after each round, the next address of a name comes first.
     */
    Destination current() {
        int tried = failures;
        Address address = addresses.get(tried % addresses.size());
        return new Destination(address, tried / addresses.size());
    }

    /** Connects. Throws ConnectionLostException. */
    Connection dial(Destination to, long timeoutNs) {
        return dialer.dial(to.address(), to.turn(), timeoutNs);
    }

    /** Advances after a failure of the current one. Called by one thread. */
    void failed() {
        failures = (failures + 1) & Integer.MAX_VALUE;
    }

    int count() {
        return addresses.size();
    }
}
