package io.github.orderlane.client.internal;

import io.github.orderlane.client.ConnectionLostException;
import io.github.orderlane.client.Tls;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnknownHostException;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** Makes connections, with TLS or without. */
final class Dialer {
    private final Tls tls; // null: none

    Dialer(Tls tls) {
        this.tls = tls;
    }

    /**
     * Connects. The name is resolved, and each of its addresses tried in turn, starting with number
     * {@code first}. Throws ConnectionLostException on failure or timeout.
     */
    Connection dial(Address address, int first, long timeoutNs) {
        List<InetAddress> found;
        try {
            found = Arrays.asList(InetAddress.getAllByName(address.host()));
        } catch (UnknownHostException error) {
            throw refused(address, "unknown host", error);
        }
        Collections.rotate(found, -(first % found.size()));
        long endNs = System.nanoTime() + timeoutNs;
        ConnectionLostException failure = null;
        for (int tried = 0; tried < found.size(); tried++) {
            // Share the time left, so that one hanging address leaves time for the others.
            long shareNs = (endNs - System.nanoTime()) / (found.size() - tried);
            try {
                return connect(address, found.get(tried), Math.max(shareNs, Times.MS));
            } catch (ConnectionLostException error) {
                failure = error;
            }
        }
        throw failure;
    }

    private Connection connect(Address address, InetAddress place, long timeoutNs) {
        Socket raw = new Socket();
        Alarm alarm = new Alarm(timeoutNs, () -> closeQuietly(raw));
        try {
            raw.setTcpNoDelay(true);
            raw.connect(new InetSocketAddress(place, address.port()));
            Connection made =
                    new Connection(address, raw, tls == null ? raw : secured(raw, address));
            if (!alarm.callOff()) {
                throw new IOException("connected too late"); // it is being closed
            }
            return made;
        } catch (IOException error) {
            closeQuietly(raw);
            throw refused(
                    address,
                    alarm.callOff()
                            ? error.getMessage()
                            : "timed out after " + Times.seconds(timeoutNs),
                    error);
        } finally {
            alarm.callOff();
        }
    }

    private Socket secured(Socket raw, Address address) throws IOException {
        String name = tls.serverName().orElse(address.host());
        SSLSocket socket =
                (SSLSocket)
                        tls.context()
                                .getSocketFactory()
                                .createSocket(raw, name, address.port(), true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS"); // match the certificate
        try {
            parameters.setServerNames(List.of(new SNIHostName(name)));
        } catch (IllegalArgumentException unfit) { // an address, or a name with an underscore
            parameters.setServerNames(List.of());
        }
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        return socket;
    }

    private static ConnectionLostException refused(Address address, String why, IOException error) {
        return new ConnectionLostException(
                "no connection to " + address + ": " + why, false, error);
    }

    private static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException alreadyBroken) {
            // nothing is left to close
        }
    }
}
