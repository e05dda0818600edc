package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.file.Path;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.junit.jupiter.api.Test;

class LineTest {
    /** In an interpreting JVM, because the code of a consumer's end runs uncompiled. */
    @Test
    void lineCanBeClosedDuringHangUp() throws Exception {
        Process process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin/java").toString(),
                                "-Xint", "-Xmx32m",
                                "-cp", System.getProperty("java.class.path"),
                                Closing.class.getName())
                        .inheritIO()
                        .start();
        try {
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            assertEquals(0, process.exitValue());
        } finally {
            process.destroyForcibly();
        }
    }

    /** Closes a line that hangs up repeatedly. */
    static final class Closing {
        private Closing() {}

        public static void main(String[] none) throws IOException {
            ReentrantLock lock = new ReentrantLock();
            Line line = new Line(lock, new Clock(), OptionalLong::empty);
            Socket nowhere = new Nowhere();
            Connection connection = new Connection(new Address("a", 1), nowhere, nowhere);
            Thread thread =
                    new Thread(
                            () -> {
                                for (int count = 0; count < 100_000; count++) {
                                    line.connected(() -> connection);
                                    line.hangUp();
                                }
                            });
            thread.setDaemon(true);
            thread.start();
            while (thread.isAlive()) {
                lock.lock();
                try {
                    line.close();
                } finally {
                    lock.unlock();
                }
            }
        }
    }

    /** A socket that is open but connected to nothing. */
    private static final class Nowhere extends Socket {
        @Override
        public InputStream getInputStream() {
            return InputStream.nullInputStream();
        }
    }
}
