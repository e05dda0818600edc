package orderlane.client.internal;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import orderlane.client.ProtocolException;
import orderlane.client.ProxyFaultException;
import org.apache.thrift.TApplicationException;
import org.apache.thrift.TBase;
import org.apache.thrift.TConfiguration;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.protocol.TMessage;
import org.apache.thrift.protocol.TMessageType;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.transport.TMemoryBuffer;
import org.apache.thrift.transport.TMemoryInputTransport;

/**
 * Framed compact Thrift for a client: calls to bytes, bytes to answers. A frame is a 4-byte
 * big-endian length and that many bytes. The generated clients are not used: they cannot tell a
 * late answer from a lost one.
 */
final class Wire {
    /**
     * Longest answer taken: 32 MiB, for the most that limits.max_answer_bytes of a proxy lets, and
     * one message more, inflated to 16 MiB.
     */
    static final int MAX_FRAME_BYTES = 33_554_432;

    /** Elements of one list or map of an answer; a hostile length would else cost memory. */
    private static final long MAX_CONTAINER = 1_000_000;

    private static final int LENGTH_BYTES = 4;
    /** Up to this an answer's buffer is made before its bytes have come. */
    private static final int TRUSTED_BYTES = 1 << 20;

    private static final TConfiguration LIMITS =
            TConfiguration.custom()
                    .setMaxMessageSize(MAX_FRAME_BYTES)
                    .setMaxFrameSize(MAX_FRAME_BYTES)
                    .build();

    private Wire() {}

    /** The frame that calls a method, length included. */
    static ByteBuffer encodeCall(String method, TBase<?, ?> arguments, int sequenceId) {
        TMemoryBuffer buffer;
        try {
            buffer = new TMemoryBuffer(512);
            buffer.write(new byte[LENGTH_BYTES], 0, LENGTH_BYTES);
            TProtocol protocol = new TCompactProtocol(buffer);
            protocol.writeMessageBegin(new TMessage(method, TMessageType.CALL, sequenceId));
            arguments.write(protocol);
            protocol.writeMessageEnd();
        } catch (TException error) { // a required field is missing: a bug of ours
            throw new IllegalStateException("cannot encode " + method, error);
        }
        ByteBuffer frame = ByteBuffer.wrap(buffer.getArray(), 0, buffer.length());
        return frame.putInt(0, buffer.length() - LENGTH_BYTES);
    }

    /** The next frame, without its length. Throws ProtocolException for a length out of bounds. */
    static byte[] readFrame(InputStream input) throws IOException {
        byte[] head = readFully(input, LENGTH_BYTES);
        int length = ByteBuffer.wrap(head).getInt();
        if (length <= 0 || length > MAX_FRAME_BYTES) {
            throw new ProtocolException(
                    "the answer begins with " + Arrays.toString(head) + " ('"
                            + new String(head, StandardCharsets.US_ASCII)
                                    .replaceAll("[^ -~]", "?")
                            + "'), which is no length of a Thrift frame:"
                            + " is this the Thrift port of an orderlane proxy?",
                    null);
        }
        return readFully(input, length);
    }

    private static byte[] readFully(InputStream input, int length) throws IOException {
        byte[] bytes;
        int read;
        if (length <= TRUSTED_BYTES) {
            bytes = new byte[length];
            read = input.readNBytes(bytes, 0, length);
        } else {
            bytes = input.readNBytes(length);
            read = bytes.length;
        }
        if (read < length) {
            throw new EOFException("it was closed");
        }
        return bytes;
    }

    /**
     * Fills the generated {@code *_result} struct from an answer. Throws ProxyFaultException if the
     * proxy says that it failed, ProtocolException if the bytes do not fit.
     */
    static void decodeReply(byte[] frame, TBase<?, ?> result, String method, int sequenceId) {
        TMessage head;
        TApplicationException fault = null;
        try {
            TMemoryInputTransport transport = new TMemoryInputTransport(LIMITS, frame);
            TProtocol protocol =
                    new TCompactProtocol(transport, MAX_FRAME_BYTES, MAX_CONTAINER);
            head = protocol.readMessageBegin();
            if (head.type == TMessageType.EXCEPTION) {
                fault = TApplicationException.readFrom(protocol);
            } else {
                result.read(protocol);
            }
        } catch (TException | RuntimeException error) {
            throw new ProtocolException(
                    "the answer to " + method + " cannot be read: " + error, error);
        }
        if (fault != null) {
            throw new ProxyFaultException(
                    "the proxy answered " + method + " with a fault: " + fault.getMessage(),
                    fault.getType() == TApplicationException.INTERNAL_ERROR);
        }
        if (head.type != TMessageType.REPLY
                || !head.name.equals(method)
                || head.seqid != sequenceId) {
            throw new ProtocolException(
                    method + " number " + sequenceId + " was answered by message type " + head.type
                            + " for '" + head.name + "' number " + head.seqid,
                    null);
        }
    }
}
