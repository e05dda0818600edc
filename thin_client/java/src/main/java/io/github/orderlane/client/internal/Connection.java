package io.github.orderlane.client.internal;

import io.github.orderlane.client.ConnectionLostException;
import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.RefusedException;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.concurrent.ThreadLocalRandom;

/**
 * One connection, one call at a time. It is closed after any OrderlaneException except
 * RefusedException, and after an answer that came in the moment of its timeout. Timeouts close
 * the socket, so they limit both writing and reading.
 */
final class Connection implements AutoCloseable {
    private static final int READ_BYTES = 64 * 1024;

    private final Address address;
    private final Socket raw;
    private final Socket socket; // over TLS, or raw itself
    private final InputStream input;
    /** Starts at random, to detect answers mixed up between two connections. */
    private int sequenceId = ThreadLocalRandom.current().nextInt(Integer.MAX_VALUE);

    /** {@code raw} is the socket underneath {@code socket}. */
    Connection(Address address, Socket raw, Socket socket) throws IOException {
        this.address = address;
        this.raw = raw;
        this.socket = socket;
        this.input = new BufferedInputStream(socket.getInputStream(), READ_BYTES);
    }

    /**
     * Sends a call and waits for its answer. Throws ConnectionLostException, RefusedException,
     * ProxyFaultException or ProtocolException.
     */
    <T> T call(Call<?, T> call, long timeoutNs) {
        sequenceId = (sequenceId + 1) & Integer.MAX_VALUE;
        boolean usable = false;
        try {
            byte[] frame = exchange(call, timeoutNs);
            T answer = call.decode(frame, sequenceId, address);
            usable = true;
            return answer;
        } catch (RefusedException error) {
            usable = true;
            throw error;
        } finally {
            if (!usable) {
                close();
            }
        }
    }

    private byte[] exchange(Call<?, ?> call, long timeoutNs) {
        ByteBuffer request = Wire.encodeCall(call.method, call.arguments, sequenceId);
        Alarm alarm = new Alarm(timeoutNs, this::close);
        try {
            socket.getOutputStream().write(request.array(), 0, request.limit());
            socket.getOutputStream().flush();
            return Wire.readFrame(input);
        } catch (IOException error) {
            throw lost(call.method, timeoutNs, error, !alarm.callOff());
        } finally {
            if (!alarm.callOff()) {
                close(); // the alarm may do so only during the next call
            }
        }
    }

    private OrderlaneException lost(
            String method, long timeoutNs, IOException error, boolean timedOut) {
        if (timedOut) {
            return new ConnectionLostException(
                    address + " did not answer " + method + " within " + Times.seconds(timeoutNs),
                    false,
                    error);
        }
        return new ConnectionLostException(
                "the connection to " + address + " broke during " + method + ": "
                        + error.getMessage(),
                true,
                error);
    }

    /** True once this side has closed it. */
    boolean closed() {
        return raw.isClosed();
    }

    /** Closes the connection; a call waiting in another thread fails. */
    @Override
    public void close() {
        try {
            raw.close(); // closing TLS would wait for the other side
        } catch (IOException alreadyBroken) {
            // nothing is left to close
        }
    }
}
