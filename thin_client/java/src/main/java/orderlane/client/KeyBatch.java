package orderlane.client;

import java.util.Iterator;
import java.util.List;

/**
 * Messages of one order key, in their order, for one handler. A message without a key comes alone.
 *
 * <p>What its handler returns holds for the first message not marked by {@link #ok}: those before
 * it are handled, those behind it are given back unhandled. {@link Outcome#ok()} means all of them.
 */
public interface KeyBatch extends Iterable<Message> {

    /** The messages; never empty. */
    List<Message> messages();

    /**
     * This message, and with it all before it, is handled, whatever the handler returns or throws.
     * Throws IllegalArgumentException if it is not of this batch.
     */
    void ok(Message message);

    /** How many are marked by now. */
    int done();

    @Override
    default Iterator<Message> iterator() {
        return messages().iterator();
    }
}
