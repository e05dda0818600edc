package io.github.orderlane.client;

/** The proxy failed, or does not implement the method. */
public final class ProxyFaultException extends OrderlaneException {
    private static final long serialVersionUID = 1L;

    private final boolean retriable;

    public ProxyFaultException(String message, boolean retriable) {
        super(message, null);
        this.retriable = retriable;
    }

    @Override
    public boolean retriable() {
        return retriable;
    }
}
