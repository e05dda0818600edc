package orderlane.client;

/** The connection could not be made, or ended before the answer came. The effect is unknown. */
public final class ConnectionLostException extends OrderlaneException {
    private static final long serialVersionUID = 1L;

    private final boolean broke;

    /** {@code broke}: as {@link #broke()}; {@code cause} may be null. */
    public ConnectionLostException(String message, boolean broke, Throwable cause) {
        super(message, cause);
        this.broke = broke;
    }

    /** True: it stood, and ended suddenly; another one to the same proxy may do. */
    public boolean broke() {
        return broke;
    }

    @Override
    public boolean retriable() {
        return true;
    }
}
