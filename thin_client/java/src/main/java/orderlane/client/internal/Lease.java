package orderlane.client.internal;

import java.nio.ByteBuffer;

/** One message with what its proxy has to be told to settle it; written by the session alone. */
final class Lease {
    /** Messages of one key are handled one after the other. */
    record Key(String topic, ByteBuffer orderKey) {}

    final HeldMessage message;
    final Home home;
    /** Null: in no order. */
    final Key key;
    /** The same object for all that came together and have to be handled in sequence. */
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

    /** When a third of its length is gone. */
    long extendAtNs() {
        return message.deadlineNs - 2 * lengthNs / 3;
    }
}
