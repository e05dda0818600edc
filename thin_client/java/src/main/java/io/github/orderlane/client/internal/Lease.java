package io.github.orderlane.client.internal;

import java.nio.ByteBuffer;

/** One message, and the data needed to settle it; modified only by the session. */
final class Lease {
    /** Messages of one key are handled one after the other. */
    record Key(String topic, ByteBuffer orderKey) {}

    final HeldMessage message;
    final Home home;
    /** Null: unordered. */
    final Key key;
    /** The same object for messages that arrived together and must be handled in sequence. */
    final Object run;

    long lengthNs;
    /** With a handler. */
    boolean open;

    Lease(HeldMessage message, Home home, Key key, long lengthNs, Object run) {
        this.message = message;
        this.home = home;
        this.key = key;
        this.lengthNs = lengthNs;
        this.run = run;
    }

    /** When a third of its length has passed. */
    long extendAtNs() {
        return message.deadlineNs - 2 * lengthNs / 3;
    }
}
