package io.github.orderlane.client;

/** The connection failed, or ended before the answer. The effect of the request is unknown. */
public final class ConnectionLostException extends OrderlaneException {
    private static final long serialVersionUID = 1L;

    private final boolean broke;

    /** {@code broke}: see {@link #broke()}; {@code cause} may be null. */
    public ConnectionLostException(String message, boolean broke, Throwable cause) {
        super(message, cause);
        this.broke = broke;
    }

    /**
     * Returns true if an established connection ended suddenly: reconnecting to the same proxy may
     * help.
     */
    public boolean broke() {
        return broke;
    }

    @Override
    public boolean retriable() {
        return true;
    }
}
