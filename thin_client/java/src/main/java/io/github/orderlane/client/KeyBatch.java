package io.github.orderlane.client;

import java.util.Iterator;
import java.util.List;

/**
 * Messages of one order key, in order, for one handler. A message without a key comes alone.
 *
 * <p>The handler's outcome applies to the first message not marked by {@link #ok}: those before it
 * are handled, those behind it are released unhandled. {@link Outcome#ok()} applies to all of them.
 */
public interface KeyBatch extends Iterable<Message> {

    /** Returns the messages; never empty. */
    List<Message> messages();

    /**
     * Marks this message and all before it as handled, whatever the handler returns or throws.
     * Throws IllegalArgumentException if the message is not in this batch.
     */
    void ok(Message message);

    /** Returns the number of messages marked so far. */
    int done();

    @Override
    default Iterator<Message> iterator() {
        return messages().iterator();
    }
}
