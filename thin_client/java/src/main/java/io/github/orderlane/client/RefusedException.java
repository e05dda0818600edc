package io.github.orderlane.client;

/** The proxy refused the request. */
public final class RefusedException extends OrderlaneException {
    private static final long serialVersionUID = 1L;

    private final int code;

    public RefusedException(int code, String message) {
        super(message, null);
        this.code = code;
    }

    /**
     * 400: invalid request; 401: missing or unknown token; 403: not allowed; 404: no such group or
     * topic; from 500: retry later.
     */
    public int code() {
        return code;
    }

    @Override
    public boolean retriable() {
        return code >= 500;
    }
}
