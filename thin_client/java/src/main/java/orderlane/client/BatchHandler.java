package orderlane.client;

/** Handles some messages of one key; called for several keys at a time. */
@FunctionalInterface
public interface BatchHandler {

    /**
     * Does what the messages ask for, in their order, and says what became of the first that was
     * not marked with {@link KeyBatch#ok}; {@link Outcome#ok()} means that all are handled. Any
     * exception is logged and means {@link Outcome#retry()} for that message. Interrupted as
     * {@link MessageHandler} is.
     */
    Outcome handle(KeyBatch batch) throws Exception;
}
