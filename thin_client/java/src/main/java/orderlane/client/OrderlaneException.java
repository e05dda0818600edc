package orderlane.client;

/** What can go wrong between a client and a proxy. Ask {@link #retriable}, not for the class. */
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

    /** Whether trying again may help. */
    public abstract boolean retriable();
}
