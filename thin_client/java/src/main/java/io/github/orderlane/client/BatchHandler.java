package io.github.orderlane.client;

/** Handles several messages of one key; called concurrently for different keys. */
@FunctionalInterface
public interface BatchHandler {

    /**
     * Handles the messages in order, and returns the outcome of the first that was not marked with
     * {@link KeyBatch#ok}; {@link Outcome#ok()} means that all are handled. Any exception is logged
     * and means {@link Outcome#retry()} for that message. Interrupted like a {@link
     * MessageHandler}.
     */
    Outcome handle(KeyBatch batch) throws Exception;
}
