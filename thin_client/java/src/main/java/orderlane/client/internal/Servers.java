package orderlane.client.internal;

import java.util.List;

/** The proxies, and which is tried next: the one after, when one has failed. */
final class Servers {
    private final List<Address> addresses;
    private final Dialer dialer;
    private volatile int failures;

    Servers(List<Address> addresses, Dialer dialer) {
        this.addresses = addresses;
        this.dialer = dialer;
    }

    /**
     * Where a connection leads.
     *
     * @param turn of the addresses that a name stands for: how many to pass over
     */
    record Destination(Address address, int turn) {}

    /** Where the next connection leads: once round, a name's next address comes first. */
    Destination current() {
        int tried = failures;
        Address address = addresses.get(tried % addresses.size());
        return new Destination(address, tried / addresses.size());
    }

    /** Connects. Throws ConnectionLostException. */
    Connection dial(Destination to, long timeoutNs) {
        return dialer.dial(to.address(), to.turn(), timeoutNs);
    }

    /** The current one failed. Caller: one thread. */
    void failed() {
        failures = (failures + 1) & Integer.MAX_VALUE;
    }

    int count() {
        return addresses.size();
    }
}
