package orderlane.client;

/**
 * Told what a consumer does, for metrics and histories. Called on the client's threads, also on
 * several at a time: never block. What it throws is logged and goes no further.
 */
public interface Observer {

    /** A message goes to a handler, or in a batch its turn has come. */
    default void onHandleStart(Message message) {}

    /**
     * Its handler ended, or marked it as handled; called before the next message of its key begins.
     */
    default void onHandleEnd(Message message, Outcome outcome) {}

    /** A pull was answered with so many messages. */
    default void onPulled(int messages) {}

    /**
     * A settle was answered: of the verdicts it carried, {@code notHeld} were on leases that were
     * no longer held. Verdicts that ride on pulls are not reported.
     */
    default void onSettled(int verdicts, int notHeld) {}

    /** The message is with a handler, and may now go to someone else as well. */
    default void onLeaseLost(Message message) {}

    /** A request failed; it will be tried again if {@code error.retriable()}. */
    default void onError(OrderlaneException error) {}
}
