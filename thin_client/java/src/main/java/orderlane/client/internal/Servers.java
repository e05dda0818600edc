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

    /** Where the next connection leads. */
    Address current() {
        return addresses.get(failures % addresses.size());
    }

    /** Connects there; once round, a name's next address comes first. */
    Connection dial(long timeoutNs) {
        return dialer.dial(current(), failures / addresses.size(), timeoutNs);
    }

    /** Connects to one that named itself; throws IllegalArgumentException if that is no address. */
    Connection dial(String address, long timeoutNs) {
        return dialer.dial(Address.parse(address), 0, timeoutNs);
    }

    /** The current one failed. Caller: one thread. */
    void failed() {
        failures = (failures + 1) & Integer.MAX_VALUE;
    }

    int count() {
        return addresses.size();
    }
}
