package io.github.orderlane.client;

/**
 * Receives events of a consumer, for metrics and histories. Called on the client's threads,
 * concurrently: it must not block. Exceptions are logged and otherwise ignored.
 */
public interface Observer {

    /** A handler gets the message, or reaches it in its batch. */
    default void onHandleStart(Message message) {}

    /**
     * The message's handler ended, or marked it as handled. Called before the key's next message
     * starts.
     */
    default void onHandleEnd(Message message, Outcome outcome) {}

    /** A pull was answered with this number of messages. */
    default void onPulled(int messages) {}

    /**
     * A settle was answered: {@code notHeld} of its verdicts were on leases no longer held.
     * Verdicts that ride on pulls are not reported.
     */
    default void onSettled(int verdicts, int notHeld) {}

    /** The message is with a handler, and may now be delivered to another client. */
    default void onLeaseLost(Message message) {}

    /** A request failed; it is retried if {@code error.retriable()}. */
    default void onError(OrderlaneException error) {}
}
