package io.github.orderlane.client;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.thrift.TException;
import org.apache.thrift.TProcessor;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.transport.TMemoryBuffer;
import org.apache.thrift.transport.TMemoryInputTransport;

/** Serves framed calls on a port of its own, each connection in a thread. */
final class FakeServer implements AutoCloseable {
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final List<Socket> sockets = new ArrayList<>();
    private final TProcessor processor;

    FakeServer(TProcessor processor) throws IOException {
        this.processor = processor;
        thread(this::accept);
    }

    String address() {
        return "127.0.0.1:" + server.getLocalPort();
    }

    private interface Body {
        void run() throws IOException, TException;
    }

    private static void thread(Body body) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                body.run();
                            } catch (IOException | TException closed) {
                                return;
                            }
                        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        while (true) {
            Socket socket = server.accept();
            synchronized (this) {
                sockets.add(socket);
            }
            thread(() -> serve(socket));
        }
    }

    private void serve(Socket socket) throws IOException, TException {
        DataInputStream input = new DataInputStream(socket.getInputStream());
        DataOutputStream output = new DataOutputStream(socket.getOutputStream());
        while (true) {
            byte[] frame = input.readNBytes(input.readInt());
            TMemoryBuffer answer = new TMemoryBuffer(512);
            processor.process(
                    new TCompactProtocol(new TMemoryInputTransport(frame)),
                    new TCompactProtocol(answer));
            output.writeInt(answer.length());
            output.write(Arrays.copyOf(answer.getArray(), answer.length()));
            output.flush();
        }
    }

    @Override
    public synchronized void close() throws IOException {
        server.close();
        for (Socket socket : sockets) {
            socket.close();
        }
    }
}
