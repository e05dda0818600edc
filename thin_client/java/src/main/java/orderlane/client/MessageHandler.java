package orderlane.client;

/** Handles one message; called for several keys at a time, never twice at a time for one key. */
@FunctionalInterface
public interface MessageHandler {

    /**
     * Does what the message asks for, and says what became of it. Any exception is logged and means
     * {@link Outcome#retry()}. The thread is interrupted when the lease is lost or the time to
     * drain is up, unless the consumer was built with {@code interruptHandlers(false)}.
     */
    Outcome handle(Message message) throws Exception;
}
