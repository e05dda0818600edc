package io.github.orderlane.client;

/** The answer violates the protocol: another kind of server, or a bug. */
public final class ProtocolException extends OrderlaneException {
    private static final long serialVersionUID = 1L;

    public ProtocolException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public boolean retriable() {
        return false;
    }
}
