package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.ProtocolException;
import io.github.orderlane.client.ProxyFaultException;
import io.github.orderlane.client.RefusedException;
import io.github.orderlane.client.gen.consumer.ConsumerService;
import io.github.orderlane.client.gen.consumer.Context;
import io.github.orderlane.client.gen.consumer.Message;
import io.github.orderlane.client.gen.consumer.PullException;
import io.github.orderlane.client.gen.consumer.PullRequest;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.thrift.TApplicationException;
import org.apache.thrift.TBase;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.protocol.TMessage;
import org.apache.thrift.protocol.TMessageType;
import org.apache.thrift.transport.TMemoryBuffer;
import org.junit.jupiter.api.Test;

/** Arbitrary bytes give an answer or a documented exception. */
class WireTest {
    private static byte[] frame(byte kind, String method, int number, TBase<?, ?> result)
            throws TException {
        TMemoryBuffer buffer = new TMemoryBuffer(64);
        TCompactProtocol protocol = new TCompactProtocol(buffer);
        protocol.writeMessageBegin(new TMessage(method, kind, number));
        result.write(protocol);
        return Arrays.copyOf(buffer.getArray(), buffer.length());
    }

    private static ConsumerService.pull_result result() {
        List<Message> messages =
                List.of(new Message().setLeaseId(1).setOffset(2).setValue("body".getBytes()));
        PullResponse response = new PullResponse(new Context("g", "t", "q#1"), messages);
        ConsumerService.pull_result result = new ConsumerService.pull_result();
        result.setSuccess(response.setLeaseMs(10).setHome("a:1"));
        return result;
    }

    private static PullResponse decode(byte[] frame) {
        return Call.pull(new PullRequest("g")).decode(frame, 7, "proxy:9713");
    }

    @Test
    void answersRoundTrip() throws TException {
        PullResponse response = decode(frame(TMessageType.REPLY, "pull", 7, result()));
        assertEquals(result().getSuccess(), response);
    }

    @Test
    void callStartsWithItsLength() throws IOException {
        ByteBuffer call =
                Wire.encodeCall("pull", new ConsumerService.pull_args(new PullRequest("g")), 7);
        byte[] bytes = Arrays.copyOf(call.array(), call.limit());
        assertEquals(
                bytes.length - 4, Wire.readFrame(new ByteArrayInputStream(bytes)).length);
    }

    @Test
    void refusalsFaultsAndOtherAnswersAreDistinguished() throws TException {
        ConsumerService.pull_result refused = new ConsumerService.pull_result();
        refused.setError(new PullException(404, "no such group"));
        byte[] refusal = frame(TMessageType.REPLY, "pull", 7, refused);
        var error = assertThrows(RefusedException.class, () -> decode(refusal));
        assertEquals("proxy:9713 refused pull: no such group", error.getMessage());
        assertEquals(404, error.code());

        TMemoryBuffer buffer = new TMemoryBuffer(64);
        TCompactProtocol protocol = new TCompactProtocol(buffer);
        protocol.writeMessageBegin(new TMessage("pull", TMessageType.EXCEPTION, 7));
        new TApplicationException(TApplicationException.INTERNAL_ERROR, "sorry").write(protocol);
        byte[] faulty = Arrays.copyOf(buffer.getArray(), buffer.length());
        assertTrue(assertThrows(ProxyFaultException.class, () -> decode(faulty)).retriable());

        for (byte[] stranger :
                List.of(
                        frame(TMessageType.REPLY, "pull", 8, result()),
                        frame(TMessageType.REPLY, "push", 7, result()),
                        frame(TMessageType.CALL, "pull", 7, result()),
                        frame(TMessageType.REPLY, "pull", 7, new ConsumerService.pull_result()))) {
            assertThrows(ProtocolException.class, () -> decode(stranger));
        }
    }

    @Test
    void corruptedAnswersAreProtocolErrorsOrOtherAnswers() throws TException {
        byte[] good = frame(TMessageType.REPLY, "pull", 7, result());
        Random random = new Random(11);
        int refused = 0;
        for (int i = 0; i < 20_000; i++) {
            int length = random.nextInt(4) == 0 ? random.nextInt(good.length) : good.length;
            byte[] bad = Arrays.copyOf(good, length);
            for (int n = random.nextInt(3); n > 0 && bad.length > 0; n--) {
                bad[random.nextInt(bad.length)] = (byte) random.nextInt(256);
            }
            try {
                decode(bad);
            } catch (OrderlaneException error) {
                refused++;
            }
        }
        assertTrue(refused > 5_000);
    }

    @Test
    void invalidFrameLengthsAreExplained() throws IOException {
        byte[] http = "HTTP/1.1 400 Bad Request".getBytes();
        var error =
                assertThrows(
                        ProtocolException.class,
                        () -> Wire.readFrame(new ByteArrayInputStream(http)));
        assertTrue(error.getMessage().contains("('HTTP'), which is not a Thrift frame length"));
        for (int length : new int[] {0, -1, Wire.MAX_FRAME_BYTES + 1}) {
            byte[] head = ByteBuffer.allocate(4).putInt(length).array();
            assertThrows(
                    ProtocolException.class,
                    () -> Wire.readFrame(new ByteArrayInputStream(head)));
        }
        byte[] torn = ByteBuffer.allocate(9).putInt(Wire.MAX_FRAME_BYTES).array();
        assertThrows(EOFException.class, () -> Wire.readFrame(new ByteArrayInputStream(torn)));
    }
}
