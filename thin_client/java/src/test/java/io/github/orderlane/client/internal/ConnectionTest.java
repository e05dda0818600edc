package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.AckRequest;
import io.github.orderlane.client.gen.consumer.ConsumerService;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.protocol.TMessage;
import org.apache.thrift.protocol.TMessageType;
import org.apache.thrift.transport.TMemoryBuffer;
import org.apache.thrift.transport.TMemoryInputTransport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class ConnectionTest {
    private static final Address ADDRESS = new Address("a", 1);

    /** Answers a settle with bytes that are there when the timeout closes it. */
    private static final class Late extends Socket {
        private final ByteArrayOutputStream request = new ByteArrayOutputStream();
        private final InputStream answers =
                new InputStream() {
                    private InputStream answer;

                    @Override
                    public int read() {
                        throw new UnsupportedOperationException("reads are buffered");
                    }

                    @Override
                    public int read(byte[] into, int from, int length) throws IOException {
                        if (answer == null) {
                            answer = new ByteArrayInputStream(answered(request.toByteArray()));
                        }
                        while (!isClosed()) {
                            Thread.onSpinWait();
                        }
                        return answer.read(into, from, length);
                    }
                };

        @Override
        public InputStream getInputStream() {
            return answers;
        }

        @Override
        public OutputStream getOutputStream() {
            return request;
        }
    }

    private static byte[] answered(byte[] request) {
        try {
            byte[] frame = Arrays.copyOfRange(request, 4, request.length);
            int number =
                    new TCompactProtocol(new TMemoryInputTransport(frame)).readMessageBegin().seqid;
            TMemoryBuffer answer = new TMemoryBuffer(64);
            TCompactProtocol protocol = new TCompactProtocol(answer);
            protocol.writeMessageBegin(new TMessage("settle", TMessageType.REPLY, number));
            ConsumerService.settle_result result = new ConsumerService.settle_result();
            result.setSuccess(new AckAnswer(List.of()));
            result.write(protocol);
            return ByteBuffer.allocate(4 + answer.length())
                    .putInt(answer.length())
                    .put(answer.getArray(), 0, answer.length())
                    .array();
        } catch (TException error) {
            throw new AssertionError(error);
        }
    }

    @Test
    void anAnswerInTheMomentOfItsTimeoutCountsAndTheNextCallReconnects() throws Exception {
        Socket late = new Late();
        Connection first = new Connection(ADDRESS, late, late);
        Line line = new Line(new ReentrantLock(), new Clock(), OptionalLong::empty);
        line.connected(() -> first);
        AckRequest request = new AckRequest("g", List.of());
        AckAnswer answer = first.call(Call.control(Control.settle(request)), Times.MS);
        assertEquals(List.of(), answer.getNotHeld());
        assertTrue(late.isClosed());
        Socket socket = new Late();
        Connection second = new Connection(ADDRESS, socket, socket);
        assertSame(second, line.connected(() -> second));
    }
}
