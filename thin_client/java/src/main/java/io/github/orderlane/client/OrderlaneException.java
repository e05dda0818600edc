package io.github.orderlane.client;

/** A failure between a client and a proxy. Check {@link #retriable} instead of the class. */
public abstract sealed class OrderlaneException extends RuntimeException
        permits ConnectionLostException,
                ProtocolException,
                ProxyFaultException,
                RefusedException,
                SendFailedException {
    private static final long serialVersionUID = 1L;

    OrderlaneException(String message, Throwable cause) {
        super(message, cause);
    }

    /** Returns whether a retry may help. */
    public abstract boolean retriable();
}
