package io.github.orderlane.client;

/** Handles one message; called concurrently for different keys, never twice at a time for one. */
@FunctionalInterface
public interface MessageHandler {

    /**
     * Handles the message and returns its outcome. Any exception is logged and means {@link
     * Outcome#retry()}. The thread is interrupted when the lease is lost or the drain times out,
     * unless the consumer was built with {@code interruptHandlers(false)}.
     */
    Outcome handle(Message message) throws Exception;
}
