package orderlane.client;

import java.util.Map;

/**
 * Connects messages to traces: W3C trace context travels in the message properties
 * {@code traceparent} and {@code tracestate}.
 */
public interface TraceHook {

    /** Names of the properties that hold a trace context. */
    String TRACEPARENT = "traceparent";

    /** See {@link #TRACEPARENT}. */
    String TRACESTATE = "tracestate";

    /** The properties to put into a message that is about to be sent; not over those it has. */
    default Map<String, String> outgoing(String topic) {
        return Map.of();
    }

    /**
     * A message goes to a handler, on the handler's thread; the scope is closed there when the
     * handler has ended. The context is in the message's properties.
     */
    default Scope incoming(Message message) {
        return () -> {};
    }

    /** What was begun for a handler. */
    @FunctionalInterface
    interface Scope extends AutoCloseable {
        @Override
        void close();
    }
}
