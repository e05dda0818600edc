package io.github.orderlane.client;

import java.util.Map;

/**
 * Propagates traces: W3C trace context travels in the message properties {@code traceparent} and
 * {@code tracestate}.
 */
public interface TraceHook {

    /** Names of the properties that hold a trace context. */
    String TRACEPARENT = "traceparent";

    /** See {@link #TRACEPARENT}. */
    String TRACESTATE = "tracestate";

    /** Returns properties to add to an outgoing message; they do not replace existing ones. */
    default Map<String, String> outgoing(String topic) {
        return Map.of();
    }

    /**
     * Called on the handler's thread before it gets a message; the scope is closed there after the
     * handler has ended. The context is in the message's properties.
     */
    default Scope incoming(Message message) {
        return () -> {};
    }

    /** A scope opened for a handler. */
    @FunctionalInterface
    interface Scope extends AutoCloseable {
        @Override
        void close();
    }
}
